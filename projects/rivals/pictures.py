# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Curves of several methods against seconds."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from projects.rivals.measure import MEASURES


def draw(
    curves: Mapping[str, list[list[dict]]],
    features: Mapping[str, str],
    title: str,
) -> Figure:
    """Draw mean and deviation over the seeds.

    Args:
        curves (Mapping[str, list[list[dict]]]): For each method, the
            measurements of each seed.
        features (Mapping[str, str]): The feature of each method.
        title (str): Title of the figure.

    Returns:
        Figure: A column for each measure.
    """
    figure = Figure(figsize=(12, 4), layout='constrained')
    figure.suptitle(title)
    axes = figure.subplots(1, len(MEASURES))
    for axis, name in zip(axes, MEASURES):
        for method, runs in curves.items():
            feature = features[method]
            x = np.mean([[p['seconds'] for p in run] for run in runs], 0)
            y = [[p['report'][feature][name] for p in run] for run in runs]
            middle, width = np.mean(y, 0), np.std(y, 0)
            axis.plot(x, middle, '.-', label=f'{method} [{feature.upper()}]')
            axis.fill_between(x, middle - width, middle + width, alpha=0.2)
        axis.set(xlabel='CPU seconds of training', ylabel=f'{name}, %')
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize='small')
    return figure
