# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the metrics of the frozen protocols share."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from mmengine.evaluator import BaseMetric

__all__ = ['ImageMetric']


class ImageMetric(BaseMetric):
    """A mean over images that counts each of them once.

    However often a padded sampler shows an image, and to however many
    processes. A subclass says what it needs of a data sample, and of which
    loop or model that is.

    Args:
        collect_device (str): 'gpu' collects through the process group,
            whatever its backend; 'cpu' through files in the working directory,
            which all nodes must share. Defaults to 'gpu'.
        prefix (str, optional): Replaces the prefix of the metrics' names.

    Attributes:
        key (str): Field of a data sample that holds its predictions.
        advice (str): What to write in the config to get it.
    """

    key: str
    advice: str

    def __init__(
        self, collect_device: str = 'gpu', prefix: str | None = None
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Record what counts of each image of a batch.

        Args:
            data_batch (Any): Not used.
            data_samples (Sequence[dict]): With ``sample_idx`` and the key of
                the predictions.

        Raises:
            ValueError: If either is missing.
        """
        for sample in data_samples:
            for key, advice in (
                (self.key, self.advice),
                ('sample_idx', 'keep it among the meta_keys of PackInputs'),
            ):
                if key not in sample:
                    raise ValueError(
                        f'{type(self).__name__} found no {key}: {advice}'
                    )
            index = int(sample['sample_idx'])
            self.results.append((index, self.record(sample)))

    def compute_metrics(self, results: list) -> dict:
        """Average over the images.

        Args:
            results (list): (sample index, record) of all processes.

        Returns:
            dict: The metrics by name.
        """
        return self.average(list(dict(results).values()))

    @abstractmethod
    def record(self, sample: dict) -> Any:
        """What counts of an image; picklable."""

    @abstractmethod
    def average(self, records: list) -> dict:
        """The metrics by name, of one record an image."""
