# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Accuracy of the classifiers that a linear probe trains at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mmmoca.registry import METRICS

__all__ = ['LinearProbeAccuracy']


@METRICS.register_module()
class LinearProbeAccuracy(BaseMetric):
    """Accuracy, in percent, of the best classifier of a linear probe.

    Goes with :class:`~mmmoca.models.LinearProbe`. The best one has the
    highest top-1 accuracy; of equal ones it is that of the lowest learning
    rate. Metrics are ``linear/top1``, ``linear/top5`` (if there are more
    than five classes), ``linear/base_lr``, its learning rate for a batch of
    256, and ``linear/head``, its index. The top-1 accuracy of all of them is
    logged. Each image counts once, however often a padded sampler shows it.

    Args:
        collect_device (str): 'gpu' collects through the process group,
            whatever its backend; 'cpu' through files in the working directory,
            which all nodes must share. Defaults to 'gpu'.
        prefix (str, optional): Replaces the ``linear`` of the names.
    """

    default_prefix: str | None = 'linear'

    def __init__(
        self, collect_device: str = 'gpu', prefix: str | None = None
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Record where the truth ranks in the predictions of one batch.

        Args:
            data_batch (Any): Not used.
            data_samples (Sequence[dict]): Outputs of the model with keys
                ``sample_idx``, ``label_ranks``, ``base_lrs`` and
                ``num_classes``.

        Raises:
            ValueError: If the samples do not come from a linear probe, or
                have no index.
        """
        for sample in data_samples:
            for key, advice in (
                ('label_ranks', "use it with model.type='mmmoca.LinearProbe'"),
                ('sample_idx', 'keep it among the meta_keys of PackInputs'),
            ):
                if key not in sample:
                    raise ValueError(
                        f'LinearProbeAccuracy found no {key}: {advice}'
                    )
            ranks = np.asarray(sample['label_ranks'], dtype=np.int32)
            self.results.append((int(sample['sample_idx']), ranks))
            self._base_lrs = sample['base_lrs']
            self._num_classes = sample['num_classes']

    def compute_metrics(self, results: list) -> dict:
        """Average over the images and choose the best classifier.

        Args:
            results (list): (sample index, ranks of the truth, (H, )) of all
                ranks.

        Returns:
            dict: The metrics by name.
        """
        ranks = np.stack(list(dict(results).values()))  # (N, H)
        top1 = 100.0 * (ranks < 1).mean(axis=0)
        best = int(top1.argmax())
        accuracies = ', '.join(
            f'{lr:g}: {value:.2f}' for lr, value in zip(self._base_lrs, top1)
        )
        print_log(f'top-1 by base learning rate: {accuracies}', 'current')
        metrics = dict(top1=float(top1[best]))
        if self._num_classes > 5:
            metrics['top5'] = float(100.0 * (ranks[:, best] < 5).mean())
        return metrics | dict(base_lr=self._base_lrs[best], head=best)
