# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""An image of a Hugging Face data set has a URL that every loader reads."""

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from mmengine import fileio
from mmengine.fileio import BaseStorageBackend, register_backend

from mmmoca.files import outside

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

__all__ = ['ArrowBackend', 'arrow_url', 'load_arrow']

URL = re.compile(r'arrow://(.+)#(\d+)/(.+)', re.DOTALL)


class ArrowBackend(BaseStorageBackend):
    """Reads ``arrow://FOLDER#ROW/COLUMN`` of a data set on a disk.

    Each process maps the files of a data set into its memory once.
    """

    def get(self, filepath: str) -> bytes:
        """The bytes of one image, as it was put into the data set.

        Args:
            filepath: See :func:`arrow_url`.

        Returns:
            Its content.

        Raises:
            ImportError: If datasets is missing.
            OSError: If the row has no image, or names a file that is not in
                the folder of the data set.
            ValueError: If the URL is none of a row.
        """
        match = URL.fullmatch(str(filepath))
        if not match:
            raise ValueError(
                f'{filepath} is not of the form arrow://FOLDER#ROW/COLUMN'
            )
        folder, row, column = match[1], int(match[2]), match[3]
        image = _images(folder, column)[row][column] or {}
        if image.get('bytes') is not None:
            return image['bytes']
        if image.get('path') is None:
            raise OSError(f'there is no image in row {row}')
        # Whoever made the set chose the name: it is not to lead elsewhere.
        path = os.path.join(folder, image['path'])
        if outside(folder, [path]):
            raise OSError(
                f'row {row} names {image["path"]}, which is not in the '
                "folder of the data set: save the image's bytes with it, or "
                'copy the file there'
            )
        return fileio.get(path)

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """The same as a text, see :meth:`get`."""
        return self.get(filepath).decode(encoding)


register_backend('arrow', ArrowBackend, prefixes='arrow')


def arrow_url(folder: str, row: int, column: str) -> str:
    """The URL of an image, for :class:`ArrowBackend`.

    Args:
        folder: Folder of the data set.
        row: Number of the row.
        column: Name of the column.

    Returns:
        The URL.
    """
    return f'arrow://{folder}#{row}/{column}'


def load_arrow(folder: str) -> 'Dataset | DatasetDict':
    """Load what ``save_to_disk`` of Hugging Face's datasets wrote.

    Args:
        folder: The folder.

    Returns:
        A data set, or several splits.

    Raises:
        FileNotFoundError: If there is none in the folder.
        ImportError: If datasets is missing.
    """
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise ImportError('HFImages needs: pip install datasets') from error
    if '://' in folder or not os.path.isdir(folder):
        raise FileNotFoundError(
            f'{folder} is no folder on a disk. HFImages reads what '
            'datasets.load_dataset(NAME).save_to_disk(FOLDER) writes; it '
            'neither downloads nor streams'
        )
    try:
        return load_from_disk(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f'{folder} holds no data set of save_to_disk: {error}. Parquet '
            "files and folders of images first take datasets.load_dataset('"
            f"{folder}').save_to_disk(FOLDER)"
        ) from error


@lru_cache(8)
def _images(folder: str, column: str) -> 'Dataset':
    from datasets import Image

    images = load_arrow(folder).select_columns([column])
    return images.cast_column(column, Image(decode=False))
