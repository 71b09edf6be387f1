# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Accuracy of the classifiers that a linear probe trains at once."""

import numpy as np
from mmengine.logging import print_log

from mmmoca.registry import METRICS

from .image_metric import ImageMetric

__all__ = ['LinearProbeAccuracy']


@METRICS.register_module()
class LinearProbeAccuracy(ImageMetric):
    """Accuracy, in percent, of the best classifier of a linear probe.

    Goes with :class:`~mmmoca.models.LinearProbe`, which gives samples
    ``label_places``, ``base_lrs`` and ``num_classes``. The best one has the
    highest top-1 accuracy; of equal ones it is that of the lowest learning
    rate. Metrics are ``linear/top1``, ``linear/top5`` (if there are more
    than five classes), ``linear/base_lr``, its learning rate for a batch of
    256, and ``linear/head``, its index. The top-1 accuracy of all of them is
    logged. For arguments and errors see :class:`ImageMetric`.
    """

    default_prefix: str | None = 'linear'
    key = 'label_places'
    advice = "use it with model.type='mmmoca.LinearProbe'"

    def record(self, sample: dict) -> np.ndarray:
        """Place of the truth in each classifier's prediction, (H,)."""
        self._base_lrs = sample['base_lrs']
        self._num_classes = sample['num_classes']
        return np.asarray(sample['label_places'], dtype=np.int32)

    def average(self, records: list[np.ndarray]) -> dict[str, float]:
        """Accuracies of the best classifier, and which it is."""
        places = np.stack(records)  # (N, H)
        top1 = 100.0 * (places < 1).mean(axis=0)
        best = int(top1.argmax())
        accuracies = ', '.join(
            f'{lr:g}: {value:.2f}' for lr, value in zip(self._base_lrs, top1)
        )
        print_log(f'top-1 by base learning rate: {accuracies}', 'current')
        metrics = dict(top1=float(top1[best]))
        if self._num_classes > 5:
            metrics['top5'] = float(100.0 * (places[:, best] < 5).mean())
        return metrics | dict(base_lr=self._base_lrs[best], head=best)
