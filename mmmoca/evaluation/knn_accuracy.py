# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Accuracy of the predictions that the k-NN loops make."""

from mmmoca.registry import METRICS

from .image_metric import ImageMetric

__all__ = ['KNNAccuracy']


@METRICS.register_module()
class KNNAccuracy(ImageMetric):
    """Top-1 and top-5 accuracy, in percent, of every (k, temperature).

    Goes with :class:`KNNValLoop` and :class:`KNNTestLoop`, which give samples
    ``gt_label``, ``num_classes`` and ``knn_pred`` (setting -> labels, best
    first). Metrics are named ``knn/top1_k20`` or, with several temperatures,
    ``knn/top1_k20_t0.07``. Top-5 is given if there are more than five
    classes; a class without a single vote never counts as predicted. For
    arguments and errors see :class:`ImageMetric`.
    """

    default_prefix: str | None = 'knn'
    key = 'knn_pred'
    advice = (
        "write val_cfg=dict(type='mmmoca.KNNValLoop', ...) or "
        "test_cfg=dict(type='mmmoca.KNNTestLoop', ...)"
    )

    def record(self, sample: dict) -> dict[str, bool]:
        """Metric name -> whether the prediction is right."""
        truth = int(sample['gt_label'])
        tops = (1, 5) if sample['num_classes'] > 5 else (1,)
        return {
            f'top{top}_{name}': truth in labels[:top]
            for top in tops
            for name, labels in sample['knn_pred'].items()
        }

    def average(self, records: list[dict[str, bool]]) -> dict[str, float]:
        """Accuracy in percent by metric name."""
        return {
            name: 100.0 * sum(hits[name] for hits in records) / len(records)
            for name in records[0]
        }
