# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Accuracy of the classifiers that the low-shot loop fits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmengine.evaluator import BaseMetric

from mmmoca.registry import METRICS

__all__ = ['LowShotAccuracy']


@METRICS.register_module()
class LowShotAccuracy(BaseMetric):
    """Mean and standard deviation of the top-1 accuracy over the sets.

    Goes with :class:`LowShotTestLoop`. Metrics, in percent, are named
    ``lowshot/top1_<name>`` and ``lowshot/top1_<name>_std`` (of the sets as
    the whole population; left out where there is one set only).

    Args:
        collect_device (str): 'gpu' collects through the process group,
            whatever its backend; 'cpu' through files in the working directory,
            which all nodes must share. Defaults to 'gpu'.
        prefix (str, optional): Replaces the ``lowshot`` of the names.
    """

    default_prefix: str | None = 'lowshot'

    def __init__(
        self, collect_device: str = 'gpu', prefix: str | None = None
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Record which predictions are right.

        Args:
            data_batch (Any): Not used.
            data_samples (Sequence[dict]): Outputs of the loop with keys
                ``gt_label``, ``sample_idx`` and ``lowshot_pred`` (name ->
                the label that each set's classifier predicts).

        Raises:
            ValueError: If the samples do not come from a low-shot loop.
        """
        for sample in data_samples:
            if 'lowshot_pred' not in sample:
                raise ValueError(
                    'LowShotAccuracy needs the predictions of a low-shot '
                    "loop: write test_cfg=dict(type='mmmoca.LowShotTestLoop',"
                    ' ...).'
                )
            truth = int(sample['gt_label'])
            hits = {
                name: [label == truth for label in labels]
                for name, labels in sample['lowshot_pred'].items()
            }
            self.results.append((sample['sample_idx'], hits))

    def compute_metrics(self, results: list) -> dict:
        """Average over the images, then over the sets.

        Args:
            results (list): (sample index, name -> right or not by each set)
                of all ranks.

        Returns:
            dict: Accuracies and standard deviations in percent.
        """
        images = list(dict(results).values())
        metrics = {}
        for name in images[0]:
            sets = 100 * np.mean([hits[name] for hits in images], axis=0)
            metrics[f'top1_{name}'] = float(sets.mean())
            if len(sets) > 1:
                metrics[f'top1_{name}_std'] = float(sets.std())
        return metrics
