# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images in tar files: the data set, an index of each file, the reader."""

import json
import os
import re
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from glob import escape, glob
from pathlib import Path

from mmengine.fileio import BaseStorageBackend, register_backend

from mmmoca.files import write_text
from mmmoca.registry import DATASETS

from .image_set import ImageSet

# Name of an image in a tar file, where its bytes begin, how many they are,
# and its class, None without one.
Member = tuple[str, int, int, int | None]


@DATASETS.register_module()
class ImageShards(ImageSet):
    """Images in tar files, in the layout of WebDataset.

    Every visible file in a shard with an image's extension is an image. Its
    label is the whole number in ``KEY.cls``, or ``label`` in ``KEY.json``,
    where KEY is its name up to the first dot. ``classes.txt`` beside the
    shards may name the classes, one a line.

    Images are read one by one, in any order, so that a run draws and resumes
    as from a folder with the same images in the same order. Shards are
    uncompressed files on a local or network disk.

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
        OSError: At build time, if a shard is damaged, compressed or cut off.
            Else see :class:`ImageSet`.
        ValueError: At build time, if labels are asked for and missing, or
            the shards are not on a disk; for an ``ann_file``.
    """

    def find_images(self) -> Iterator[dict]:
        """Find the members of the shards that are images."""
        self.refuse_list()
        shards = self._shards()
        names = Path(shards[0]).with_name('classes.txt')
        if self.with_label and self.CLASSES is None and names.is_file():
            self._metainfo['classes'] = tuple(names.read_text().splitlines())
        for shard in shards:
            for name, offset, size, label in read_index(
                shard, self.extensions
            ):
                # MMEngine splits a URL at each ://.
                name = name.replace('://', ':/')
                url = f'tar://{shard}#{offset}+{size}/{name}'
                yield dict(img_path=url, gt_label=label)

    def _shards(self) -> list[str]:
        place = self.img_prefix.rstrip('/')
        if '://' in place:
            raise ValueError(
                f'{place} is not on a disk, and ImageShards reads images in '
                'any order: copy the shards'
            )
        if os.path.isdir(place):
            # '*' leaves out hidden files, of which macOS makes one for each.
            tars = f'{place}/*.tar'
            shards = sorted(glob(f'{escape(place)}/*.tar')) or [tars]
        elif '{' in place:
            try:
                from braceexpand import braceexpand
            except ImportError as error:
                raise ImportError(
                    'braces in data_root need: pip install webdataset'
                ) from error
            shards = list(braceexpand(place))
        else:
            shards = [place]
        if missing := [s for s in shards if not os.path.isfile(s)]:
            raise FileNotFoundError(
                f'there is no file {missing[0]}. Set data_root to a folder of '
                '*.tar, a file, or a pattern such as train-{000..009}.tar; '
                'tools/dataset_converters/make_shards.py writes some'
            )
        return shards


def read_index(shard: str, extensions: Sequence[str]) -> Iterator[Member]:
    """Find the images of a tar file in the layout of WebDataset.

    Its headers are read once; what they say is kept beside it, in
    ``SHARD.index.json``, and read again as long as size and time of change of
    the shard are the same.

    Args:
        shard: Path of the tar file.
        extensions: Endings of images, lower-case.

    Returns:
        The images, in the order of the file.

    Raises:
        OSError: If the file cannot be read, is compressed, damaged or cut
            off.
    """
    status, file = os.stat(shard), Path(f'{shard}.index.json')
    made_from = [status.st_size, status.st_mtime_ns, sorted(extensions)]
    try:
        kept = json.loads(file.read_text())
    except (OSError, ValueError):
        kept = {}
    if isinstance(kept, dict) and kept.get('made_from') == made_from:
        return zip(*kept['columns'])
    try:
        images = _read_headers(shard, tuple(extensions))
    except tarfile.TarError as error:
        raise OSError(
            f'{shard} cannot be used: {error}. Write or copy it again, not '
            'compressed'
        ) from error
    try:
        kept = dict(made_from=made_from, columns=[*zip(*images)])
        write_text(file, json.dumps(kept))
    except OSError:
        warnings.warn(
            f'no index can be written in {file.parent}: each start reads the '
            'headers of the tar files',
            stacklevel=2,
        )
    return iter(images)


def _read_headers(shard: str, endings: tuple[str, ...]) -> list[Member]:
    images, labels = [], {}
    with tarfile.open(shard, 'r:') as tar:
        for member in _members(tar):
            key, suffix = _key_of(member.name)
            if member.name.lower().endswith(endings):
                images.append((member.name, member.offset_data, member.size))
            elif suffix == 'cls':
                labels[key] = _label_of(tar.extractfile(member).read())
            elif suffix == 'json':
                content = tar.extractfile(member).read()
                labels.setdefault(key, _label_of(content))
    return [(*image, labels.get(_key_of(image[0])[0])) for image in images]


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The visible files of a tar file that is whole."""
    if tar.firstmember is None:
        return  # Python 3.10 cannot read on in an empty file
    while (member := tar.next()) is not None:
        # The list of those before would grow with the file.
        tar.members.clear()
        hidden = '/.' in f'/{member.name.removeprefix("./")}'
        if member.isreg() and not hidden:
            yield member
    # Python takes a header that it cannot read for the end.
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(tarfile.BLOCKSIZE).strip(b'\0'):
        raise tarfile.ReadError(f'damaged or cut off at byte {tar.offset}')


def _key_of(name: str) -> tuple[str, str]:
    """What the files of a sample share, and the rest: up to the first dot.

    As :func:`webdataset.tariterators.base_plus_ext`.
    """
    folder, slash, file = name.rpartition('/')
    key, _, suffix = file.partition('.')
    return folder + slash + key, suffix.lower()


def _label_of(content: bytes) -> int | None:
    """The number in KEY.cls, or that of ``label`` in KEY.json."""
    if content.strip().isdigit():
        return int(content)
    try:
        label = json.loads(content)['label']
    except (KeyError, TypeError, ValueError):
        return None
    return label if isinstance(label, int) else None


class TarBackend(BaseStorageBackend):
    """Reads ``tar://SHARD#OFFSET+SIZE/NAME``, bytes of a file on a disk.

    Each process keeps the tar files open that it has used last. Threads and
    forked processes share no position in them.
    """

    def get(self, filepath: str) -> bytes:
        """The bytes of one member.

        Args:
            filepath: The URL; NAME is for messages.

        Returns:
            Its content.

        Raises:
            OSError: If the file cannot be read, or ends before the member.
            ValueError: If the URL is none of a member.
        """
        match = re.fullmatch(r'tar://(.+?)#(\d+)\+(\d+)/.*', filepath, re.S)
        if not match:
            raise ValueError(
                f'{filepath} is not of the form tar://SHARD#OFFSET+SIZE/NAME'
            )
        shard, offset, size = match[1], int(match[2]), int(match[3])
        content = os.pread(_open(shard).fileno(), size, offset)
        if len(content) < size:
            raise OSError(
                f'{shard} has {len(content)} of its {size} bytes. The file '
                'was cut off or changed'
            )
        return content

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """The text of one member, see :meth:`get`."""
        return self.get(filepath).decode(encoding)


register_backend('tar', TarBackend, prefixes='tar')


# More shards than most sets have, below the 1024 files that a process may
# have open as a rule. What leaves the cache is closed with its last user.
@lru_cache(256)
def _open(shard: str):
    return open(shard, 'rb', buffering=0)
