# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Accuracy of the classifiers that the low-shot loop fits."""

import numpy as np

from mmmoca.registry import METRICS

from .image_metric import ImageMetric

__all__ = ['LowShotAccuracy']


@METRICS.register_module()
class LowShotAccuracy(ImageMetric):
    """Mean and standard deviation of the top-1 accuracy over the sets.

    Goes with :class:`LowShotTestLoop`, which gives samples ``gt_label`` and
    ``lowshot_pred`` (name -> the label that each set's classifier predicts).
    Metrics, in percent, are named ``lowshot/top1_<name>`` and
    ``lowshot/top1_<name>_std`` (of the sets as the whole population; left
    out where there is one set only). For arguments and errors see
    :class:`ImageMetric`.
    """

    default_prefix: str | None = 'lowshot'
    key = 'lowshot_pred'
    advice = "write test_cfg=dict(type='mmmoca.LowShotTestLoop', ...)"

    def record(self, sample: dict) -> dict[str, list[bool]]:
        """Name -> whether each set's classifier is right."""
        truth = int(sample['gt_label'])
        return {
            name: [label == truth for label in labels]
            for name, labels in sample['lowshot_pred'].items()
        }

    def average(
        self, records: list[dict[str, list[bool]]]
    ) -> dict[str, float]:
        """Accuracies over the images, then mean and deviation of the sets."""
        metrics = {}
        for name in records[0]:
            sets = 100 * np.mean([hits[name] for hits in records], axis=0)
            metrics[f'top1_{name}'] = float(sets.mean())
            if len(sets) > 1:
                metrics[f'top1_{name}_std'] = float(sets.std())
        return metrics
