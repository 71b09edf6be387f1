# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images of Hugging Face data sets: the data set class, and the reader."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from mmengine.fileio import BaseStorageBackend, register_backend

from mmmoca.files import check_regular, outside
from mmmoca.messages import listed, printable
from mmmoca.registry import DATASETS
from mmmoca.requirements import import_extra

from .image_set import ImageSet

if TYPE_CHECKING:
    from datasets import Dataset

# Address of an image: the folder of its data set, the row, and the column.
ARROW_ADDRESS = re.compile(r'arrow://(.+)#(\d+)/(.+)', re.DOTALL)


@DATASETS.register_module()
class HFImages(ImageSet):
    """Images of a Hugging Face data set on a disk.

    The data set must have been written by ``save_to_disk`` of Hugging Face's
    library ``datasets``. Images are read one by one, in any order, and decoded
    by the pipeline's loader. So a run samples images and resumes in the same
    way as with a folder of the same files.

    Args:
        data_root (str): Folder of a data set or of several splits.
        data_prefix (str): Name of the split, if there are several.
        with_label (bool): Whether to read labels.
        image_column (str, optional): Column of the images. None uses the only
            column of images.
        label_column (str, optional): Column of the labels. None uses the only
            column of the type ``ClassLabel``.
        **kwargs: Further arguments of :class:`ImageSet`.

    Raises:
        FileNotFoundError: At build time, if there is no such data set or
            split, or it is empty.
        ImportError: At build time, if ``datasets`` is not installed.
        OSError: See :class:`ImageSet`; also if the image column has no images.
        ValueError: At build time, if the named column does not exist, or if
            none is named and there is not exactly one to choose (the message
            lists the columns); if the label column does not contain class
            numbers, or a row has no label; if the image column has a ``mode``
            other than 'RGB'; or if ``ann_file`` is given.
    """

    def __init__(
        self,
        *args,
        image_column: str | None = None,
        label_column: str | None = None,
        **kwargs,
    ) -> None:
        self.image_column = image_column
        self.label_column = label_column
        super().__init__(*args, **kwargs)

    def find_images(self) -> Iterator[dict]:
        """Yield the rows of the data set."""
        self.refuse_list()
        folder = self.img_prefix.rstrip('/')
        dataset = _load(folder)
        column = _choose(dataset, 'image_column', self.image_column, 'Image')
        _check_mode(dataset, column)
        labels = [None] * len(dataset)
        if self.with_label and labels:
            labels = self._labels(dataset)
        for row, label in enumerate(labels):
            url = f'arrow://{folder}#{row}/{column}'
            yield dict(img_path=url, gt_label=label)

    def _labels(self, dataset: 'Dataset') -> list[int | None]:
        """Return the class of each row, or None for a row without a class."""
        name = _choose(
            dataset, 'label_column', self.label_column, 'ClassLabel'
        )
        feature = dataset.features[name]
        labels = np.asarray(dataset.with_format('numpy')[name][:])
        if labels.dtype.kind == 'f' and not (np.nan_to_num(labels) % 1).any():
            # Class numbers, some of them missing.
            labels = np.ma.masked_invalid(labels).filled(-1).astype(int)
        if labels.dtype.kind not in 'iu' or labels.ndim != 1:
            raise ValueError(
                f'the column {name!r} of {self.img_prefix!r} contains '
                f'{feature}, not class numbers: set label_column or '
                'with_label=False, or save '
                f'dataset.class_encode_column({name!r})'
            )
        names = getattr(feature, 'names', None)  # of a ClassLabel
        if names is not None:
            self.name_classes(names)
        return [n if n >= 0 else None for n in labels.tolist()]


def is_opened(data: object) -> bool:
    """Return whether data is a Hugging Face ``Dataset``.

    Nothing is imported to find out.
    """
    kind = type(data)
    name = f'{kind.__module__}.{kind.__name__}'
    return name == 'datasets.arrow_dataset.Dataset'


class HFRows(Sequence):
    """Bytes of the images of a Hugging Face data set, row by row.

    Args:
        dataset (Dataset): The data set.
        column (str, optional): Column of the images. Defaults to None, which
            uses the only column of images.
        folder (str): Folder that must contain all files named in the rows.
            Defaults to '', which allows any place: the user who opened the
            data set trusts it.

    Raises:
        ValueError: If the column does not exist, or none is named and there is
            not exactly one column of images; if it has a ``mode`` other than
            'RGB'; if the data set is empty, or transforms its rows.
        OSError: For a row without an image, or a row that names a file outside
            ``folder``.
    """

    def __init__(
        self, dataset: 'Dataset', column: str | None = None, folder: str = ''
    ) -> None:
        from datasets import Image

        if not len(dataset):
            raise ValueError('the data set is empty')
        if dataset.format['type'] == 'custom':
            raise ValueError(
                'images are read as they are stored, so the function that '
                'with_transform has set would have no effect: pass '
                'dataset.with_format(None)'
            )
        self.column = _choose(dataset, 'image_column', column, 'Image')
        self.folder = folder
        _check_mode(dataset, self.column)
        rows = dataset.with_format(None).select_columns([self.column])
        # Decoding would open any path or URL that a row names.
        self.rows = rows.cast_column(self.column, Image(decode=False))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> bytes:
        image = self.rows[range(len(self))[index]][self.column] or {}
        content, name = map(image.get, ('bytes', 'path'))
        if content is not None:
            return content
        if name is None:
            raise OSError(f'there is no image in row {index}')
        path = os.path.join(self.folder, name)
        # The author of the set chose the path. It must not leave the folder.
        if outside(self.folder, [path]):
            raise OSError(
                f'row {index} names {name}, which is not in the folder of the '
                "data set: save the image's bytes in the data set, or copy "
                'the file into the folder'
            )
        check_regular(path)
        return Path(path).read_bytes()


def _load(folder: str) -> 'Dataset':
    """Load a data set that ``save_to_disk`` of Hugging Face wrote."""
    datasets = import_extra('datasets', 'HFImages')
    if not Path(folder, 'state.json').is_file():
        places = Path(folder), Path(folder).parent
        near = [p.parent for at in places for p in at.glob('*/state.json')]
        advice = (
            f'. Nearby are {listed(near)}: correct data_root or data_prefix'
        )
        raise FileNotFoundError(
            f'{folder} is not a data set or a split that '
            'datasets.load_dataset(NAME).save_to_disk(FOLDER) wrote'
            f'{advice if near else ""}'
        )
    try:
        state = json.loads(Path(folder, 'state.json').read_text())
        # The author of the set chose the paths. None may leave the folder.
        files = [f['filename'] for f in state['_data_files']]
        for path in (os.path.join(folder, name) for name in files):
            if outside(folder, [path]):
                raise ValueError(
                    f'its state.json names {path}, outside of the folder'
                )
            check_regular(path)
        return datasets.load_from_disk(folder)
    except Exception as error:  # pyarrow and datasets have errors of their own
        raise OSError(
            f'the data set in {printable(folder)} cannot be read: '
            f'{printable(error) or type(error).__name__}'
        ) from error


def _choose(
    dataset: 'Dataset', argument: str, name: str | None, kind: str
) -> str:
    """Return the named column, or the only column of the type."""
    kinds = {n: type(f).__name__ for n, f in dataset.features.items()}
    found = [
        n for n in kinds if name == n or name is None and kinds[n] == kind
    ]
    if len(found) != 1:
        there = ', '.join(f'{n} ({kinds[n]})' for n in kinds)
        problem = f'there is no column {name}'
        if name is None:
            problem = f'{len(found)} columns are of the type {kind}'
        raise ValueError(f'{problem}: set {argument} to one of {there}')
    return found[0]


def _check_mode(dataset: 'Dataset', column: str) -> None:
    """Raise if Hugging Face's own decoding would change a column's colours."""
    mode = getattr(dataset.features[column], 'mode', None)
    if mode not in (None, 'RGB'):
        raise ValueError(
            f'images are read as they are stored, not with mode={mode!r} of '
            f'the column {column!r}: use dataset.cast_column({column!r}, '
            'datasets.Image())'
        )


class ArrowBackend(BaseStorageBackend):
    """Reads an image ``arrow://FOLDER#ROW/COLUMN`` of a data set on a disk.

    Each process memory-maps the files of a data set only once.
    """

    def get(self, filepath: str) -> bytes:
        """Return the bytes of one image, as the data set stores them.

        Args:
            filepath (str): The URL that :class:`HFImages` gives.

        Returns:
            The content of the image file.

        Raises:
            ImportError: If ``datasets`` is not installed.
            OSError: If the row has no image, or names a file that is not in
                the folder of the data set.
        """
        folder, row, column = ARROW_ADDRESS.fullmatch(filepath).groups()
        return _images(folder, column)[int(row)]

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """Return the bytes of one image as text, see :meth:`get`."""
        return self.get(filepath).decode(encoding)


register_backend('arrow', ArrowBackend, prefixes='arrow')


@lru_cache(8)
def _images(folder: str, column: str) -> HFRows:
    return HFRows(_load(folder), column, folder)
