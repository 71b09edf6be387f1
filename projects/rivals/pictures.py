# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Curves of several methods, against steps and against seconds."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

__all__ = ['draw']

TITLES = dict(
    knn='k-NN accuracy, %', linear='linear probe, %', retrieval='mAP, %'
)


def draw(
    curves: Mapping[str, list[list[dict]]],
    features: Mapping[str, str],
    title: str,
) -> Figure:
    """Mean and deviation over the seeds.

    Args:
        curves (Mapping[str, list[list[dict]]]): By method, of each seed what
            :class:`~projects.rivals.feature_curve.FeatureCurveHook`
            measured.
        features (Mapping[str, str]): The feature of each method.
        title (str): Of the figure.

    Returns:
        Figure: A row for each measure, a column for steps and seconds.
    """
    figure = Figure(figsize=(9, 9), layout='constrained')
    figure.suptitle(title)
    axes = figure.subplots(len(TITLES), 2, sharey='row')
    for row, (measure, label) in zip(axes, TITLES.items()):
        for axis, against in zip(row, ('step', 'seconds')):
            for method, runs in curves.items():
                feature = features[method]
                x = np.mean([[p[against] for p in run] for run in runs], 0)
                values = np.array(
                    [
                        [p['report'][f'{measure}_{feature}'] for p in run]
                        for run in runs
                    ]
                )
                middle, width = values.mean(0), values.std(0)
                axis.plot(x, middle, '.-', label=f'{method} ({feature})')
                axis.fill_between(x, middle - width, middle + width, alpha=0.2)
            axis.grid(alpha=0.3)
        row[0].set_ylabel(label)
    axes[0, 0].legend()
    axes[-1, 0].set_xlabel('steps')
    axes[-1, 1].set_xlabel('CPU seconds of training')
    return figure
