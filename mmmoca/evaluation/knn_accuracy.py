# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Accuracy of the predictions that the k-NN loops make."""

from collections.abc import Sequence
from typing import Any

from mmengine.evaluator import BaseMetric

from mmmoca.registry import METRICS

__all__ = ['KNNAccuracy']


@METRICS.register_module()
class KNNAccuracy(BaseMetric):
    """Top-1 and top-5 accuracy, in percent, of every (k, temperature).

    Goes with :class:`KNNValLoop` and :class:`KNNTestLoop`. Metrics are named
    ``knn/top1_k20`` or, with several temperatures, ``knn/top1_k20_t0.07``.
    Top-5 is given if there are more than five classes; a class without a
    single vote never counts as predicted. Each image counts once, however
    often a padded sampler shows it.

    Args:
        collect_device (str): 'gpu' collects through the process group,
            whatever its backend; 'cpu' through files in the working directory,
            which all nodes must share. Defaults to 'gpu'.
        prefix (str, optional): Replaces the ``knn`` of the names.
    """

    default_prefix: str | None = 'knn'

    def __init__(
        self, collect_device: str = 'gpu', prefix: str | None = None
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Record which predictions of one batch are right.

        Args:
            data_batch (Any): Not used.
            data_samples (Sequence[dict]): Outputs of the loop with keys
                ``sample_idx``, ``gt_label``, ``num_classes`` and ``knn_pred``
                (setting -> labels, best first).

        Raises:
            ValueError: If the samples do not come from a k-NN loop.
        """
        for sample in data_samples:
            if 'knn_pred' not in sample:
                raise ValueError(
                    'KNNAccuracy needs the predictions of a k-NN loop: write '
                    "val_cfg=dict(type='mmmoca.KNNValLoop', ...) or "
                    "test_cfg=dict(type='mmmoca.KNNTestLoop', ...)."
                )
            truth = int(sample['gt_label'])
            hits = {}
            for top in (1, 5) if sample['num_classes'] > 5 else (1,):
                for name, labels in sample['knn_pred'].items():
                    hits[f'top{top}_{name}'] = truth in labels[:top]
            self.results.append((sample['sample_idx'], hits))

    def compute_metrics(self, results: list) -> dict:
        """Average over the images.

        Args:
            results (list): (sample index, metric name -> right or not) of all
                ranks.

        Returns:
            dict: Accuracy in percent by metric name.
        """
        images = list(dict(results).values())
        return {
            name: 100.0 * sum(hits[name] for hits in images) / len(images)
            for name in images[0]
        }
