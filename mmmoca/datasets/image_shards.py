# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from collections.abc import Iterable, Sequence
from glob import escape, glob
from pathlib import Path

import numpy as np

from mmmoca.registry import DATASETS

from .image_set import EXTENSIONS, ImageSet, labelled
from .samples import Samples, Texts
from .tar_backend import tar_url
from .tar_index import TarIndex, index_shards

__all__ = ['ImageShards']


@DATASETS.register_module()
class ImageShards(ImageSet):
    """Images in tar files, in the layout of WebDataset.

    Each file in a shard whose name ends as an image's does is one; hidden
    ones are left out. Its label is the whole number in ``KEY.cls``, or
    ``label`` in ``KEY.json``, where KEY is its name up to the first dot.
    ``classes.txt`` beside the shards may name the classes, one a line.

    Images are read one by one, in any order, so that a run draws and resumes
    as from a folder with the same images in the same order. The shards have
    to lie on a disk (of the network, too), not compressed.

    Args:
        data_root: The shards: a folder of ``*.tar``, taken in alphabetical
            order, one such file, or a pattern of braces as
            ``/data/train-{000000..000146}.tar``.
        data_prefix: Sub-folder of ``data_root``, or files in it, if any.
        with_label: Whether to look for labels.
        extensions: Endings of the images.
        **kwargs: Further arguments of :class:`ImageSet`.

    Raises:
        FileNotFoundError: At build time, if there is no such shard or no
            image in them.
        ImportError: If there are braces, and webdataset is missing.
        OSError: At build time, if a shard is damaged, compressed or cut off;
            it names all that are. Else see :class:`ImageSet`.
        ValueError: At build time, if labels are asked for and missing, or
            the shards are not on a disk.
    """

    def __init__(
        self,
        data_root: str = '',
        data_prefix: str | dict = '',
        with_label: bool = True,
        extensions: Sequence[str] = EXTENSIONS,
        **kwargs,
    ) -> None:
        super().__init__(
            data_root,
            data_prefix,
            with_label,
            extensions,
            ann_file='',
            **kwargs,
        )

    def find_samples(self) -> Samples:
        """Find the members of the shards that are images."""
        shards = self._shards()
        indexes = index_shards(shards, self.extensions, self.with_label)
        members = _Members(shards, indexes)
        if not len(members):
            raise FileNotFoundError(
                f'no image in the {len(shards)} shards of '
                f'{self._searched()}: name their extension in extensions'
            )
        if not self.with_label:
            return Samples(members)
        self._name_classes(Path(shards[0]).with_name('classes.txt'))
        advice = 'put it into KEY.cls or KEY.json beside KEY.jpg'
        return labelled(members, members.labels, advice)

    def _shards(self) -> list[str]:
        place = self.img_prefix.rstrip('/')
        if '://' in place:
            raise ValueError(
                f'{place} is not on a disk, and ImageShards reads images in '
                'any order: copy the shards'
            )
        if os.path.isdir(place):
            # '*' leaves out hidden files, of which macOS makes one for each.
            shards = sorted(glob(f'{escape(place)}/*.tar'))
        elif '{' in place:
            shards = _expand(place)
        else:
            shards = [place]
        missing = [shard for shard in shards if not os.path.isfile(shard)]
        if missing:
            raise FileNotFoundError(
                f'there is no file {missing[0]} ({len(missing)} of '
                f'{len(shards)} shards are missing). Set data_root to a '
                'folder of *.tar, a file, or a pattern such as '
                'train-{000..009}.tar'
            )
        if not shards:
            raise FileNotFoundError(
                f'no *.tar in the folder {place}: '
                'tools/dataset_converters/make_shards.py writes some'
            )
        return shards

    def _name_classes(self, file: Path) -> None:
        if self.CLASSES is None and file.is_file():
            self._metainfo['classes'] = tuple(file.read_text().splitlines())


class _Members(Sequence):
    """URLs of the members of many tar files, put together when asked for."""

    def __init__(self, shards: list[str], indexes: Iterable[TarIndex]) -> None:
        self._shards = shards
        self._names = Texts()
        columns = []
        for index in indexes:
            self._names.extend(index.names)
            columns.append(index[1:])
        counts = [len(offsets) for offsets, *_ in columns]
        self._shard_of = np.repeat(
            np.arange(len(counts), dtype=np.int32), counts
        )
        self._offsets, self._sizes, self.labels = map(
            np.concatenate, zip(*columns)
        )

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> str:
        return tar_url(
            self._shards[self._shard_of[index]],
            self._offsets[index],
            self._sizes[index],
            self._names[index],
        )


def _expand(pattern: str) -> list[str]:
    try:
        from braceexpand import braceexpand
    except ImportError as error:
        raise ImportError(
            f'the braces of {pattern} need: pip install webdataset'
        ) from error
    return list(braceexpand(pattern))
