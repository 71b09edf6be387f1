# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Accuracy of several methods against seconds."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure


def draw(curves: Mapping[str, Mapping[str, list[list[dict]]]]) -> Figure:
    """Draw k-NN accuracy, mean and deviation over the seeds.

    Args:
        curves (Mapping[str, Mapping[str, list[list[dict]]]]): For each set
            and method, the measurements of each seed.

    Returns:
        Figure: A panel for each set, of each method's better feature.
    """
    figure = Figure(figsize=(4 * len(curves), 4), layout='constrained')
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (name, methods) in zip(axes, curves.items()):
        for method, runs in methods.items():
            x = np.mean([[p['seconds'] for p in run] for run in runs], 0)
            y = [  # of each feature, (seeds, points)
                [[p['report'][feature]['k-NN'] for p in run] for run in runs]
                for feature in ('avg', 'cls')
            ]
            y = max(y, key=lambda values: np.mean(values, 0)[-1])
            middle, width = np.mean(y, 0), np.std(y, 0)
            label = method.replace(' ', '\n')
            axis.plot(x, middle, '.-', label=label)
            axis.fill_between(x, middle - width, middle + width, alpha=0.2)
        axis.set(title=name, xlabel='CPU seconds of training')
        axis.grid(alpha=0.3)
    axes[0].set_ylabel('k-NN accuracy, %')
    axes[0].legend(fontsize='small')
    return figure
