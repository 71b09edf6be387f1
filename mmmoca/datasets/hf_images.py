# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mmmoca.registry import DATASETS

from .arrow_backend import arrow_url, load_arrow
from .image_set import ImageSet, labelled
from .samples import Samples

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ['HFImages']


@DATASETS.register_module()
class HFImages(ImageSet):
    """Images of a Hugging Face data set on a disk.

    What ``save_to_disk`` of their library ``datasets`` wrote. Images are read
    one by one, in any order, and decoded by the pipeline's loader, so that a
    run draws and resumes as from a folder of the same files.

    Args:
        data_root: Folder of a data set or of several splits.
        data_prefix: Name of the split, if there are several.
        image_column: Column of the images. None takes the only one.
        label_column: Column of the labels. None takes the only one of
            classes.
        with_label: Whether to read labels.
        **kwargs: Further arguments of :class:`ImageSet`.

    Raises:
        FileNotFoundError: At build time, if there is no such data set.
        ImportError: At build time, if datasets is missing.
        OSError: See :class:`ImageSet`.
        TypeError: At build time, if a column holds no images, or no classes.
        ValueError: At build time, if there is no such split or column, or
            several; it names what there is. Also for a row without a label.
    """

    def __init__(
        self,
        data_root: str = '',
        data_prefix: str | dict = '',
        with_label: bool = True,
        image_column: str | None = None,
        label_column: str | None = None,
        **kwargs,
    ) -> None:
        self.image_column = image_column
        self.label_column = label_column
        super().__init__(
            data_root, data_prefix, with_label, ann_file='', **kwargs
        )

    def find_samples(self) -> Samples:
        """Take the rows of the data set."""
        folder = self.img_prefix.rstrip('/')
        dataset = self._load(folder)
        if not len(dataset):
            raise FileNotFoundError(f'no image in {self._searched()}')
        column = self._image_column(dataset)
        rows = _Rows(folder, len(dataset), column)
        if not self.with_label:
            return Samples(rows)
        return labelled(rows, self._labels(dataset), 'set label_column')

    def _load(self, folder: str) -> 'Dataset':
        root = self.data_root.rstrip('/')
        if root and root != folder and not os.path.isdir(folder):
            whole = load_arrow(root)
            splits = ', '.join(whole) if isinstance(whole, dict) else 'no'
            raise ValueError(
                f'there is no split {os.path.relpath(folder, root)} in '
                f'{root}, which has {splits} splits: change data_prefix'
            )
        dataset = load_arrow(folder)
        if isinstance(dataset, dict):
            raise ValueError(
                f'{folder} has the splits {", ".join(dataset)}: write one of '
                'them as data_prefix'
            )
        return dataset

    def _image_column(self, dataset: 'Dataset') -> str:
        from datasets import Image

        name = _choose(dataset, 'image_column', self.image_column, Image)
        if not isinstance(dataset.features[name], Image):
            raise TypeError(
                f'the column {name!r} of {self._searched()} holds '
                f'{dataset.features[name]}, no images: set image_column to '
                'another one, or if these are bytes or paths of files, save '
                f'dataset.cast_column({name!r}, datasets.Image())'
            )
        return name

    def _labels(self, dataset: 'Dataset') -> np.ndarray:
        from datasets import ClassLabel

        name = _choose(dataset, 'label_column', self.label_column, ClassLabel)
        feature = dataset.features[name]
        labels = np.asarray(dataset.with_format('numpy')[name][:])
        if labels.dtype.kind not in 'iu' or labels.ndim != 1:
            raise TypeError(
                f'the column {name!r} of {self._searched()} holds {feature}, '
                'no class numbers: set label_column to another one, write '
                'with_label=False, or save '
                f'dataset.class_encode_column({name!r})'
            )
        if self.CLASSES is None and isinstance(feature, ClassLabel):
            self._metainfo['classes'] = tuple(feature.names)
        return labels

    def _searched(self) -> str:
        return repr(self.img_prefix)


def _choose(
    dataset: 'Dataset', argument: str, name: str | None, kind: type
) -> str:
    """The column that is named, or the only one of a kind."""
    features = dataset.features
    if name in features:
        return name
    found = [n for n, kind_of in features.items() if isinstance(kind_of, kind)]
    if name is None and len(found) == 1:
        return found[0]
    there = ', '.join(f'{n} ({type(f).__name__})' for n, f in features.items())
    if name is not None:
        problem = f'there is no column {name!r}'
    else:
        problem = f'{len(found) or "no"} columns are of {kind.__name__}'
    raise ValueError(f'{problem}: set {argument} to one of {there}')


class _Rows(Sequence):
    """URLs of the rows of a data set."""

    def __init__(self, folder: str, number: int, column: str) -> None:
        self._folder = folder
        self._number = number
        self._column = column

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> str:
        return arrow_url(self._folder, index, self._column)
