# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which images a tar file holds, and where: read once, kept beside it."""

import json
import logging
import os
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from mmengine.logging import print_log

from mmmoca.files import atomic_write

from .samples import Texts

__all__ = ['UNLABELLED', 'TarIndex', 'index_file', 'index_shards']

UNLABELLED = -1
VERSION = 1


class TarIndex(NamedTuple):
    """The N images of a tar file, in its order.

    Attributes:
        names: Their names in it.
        offsets: Where the bytes of each begin, int64, (N, ).
        sizes: How many bytes each has, int64, (N, ).
        labels: Class of each, int64, (N, ), :data:`UNLABELLED` without one.
    """

    names: Texts
    offsets: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray


def index_file(shard: str) -> str:
    """Where the index of a tar file is kept."""
    return f'{shard}.index.npz'


def index_shards(
    shards: Sequence[str], extensions: Sequence[str], with_label: bool
) -> Iterator[TarIndex]:
    """Find the images of tar files in the layout of WebDataset.

    The headers are read once; what they say is kept beside each file, and
    read again as long as its size and time of change are the same.

    Args:
        shards: Paths of the tar files.
        extensions: Endings of images, lower-case.
        with_label: Whether to look for labels: the integer in ``KEY.cls``,
            or that of ``label`` in ``KEY.json``.

    Yields:
        TarIndex: One for each file.

    Raises:
        OSError: If files cannot be read, are compressed, damaged or cut off.
            It names them all.
        ValueError: If what stands for a label is no class number.
    """
    problems, writable = [], True
    for shard in shards:
        stamp = _stamp(shard, extensions)
        index = _kept(shard, stamp, with_label)
        if index is None:
            try:
                index = _read_headers(shard, extensions, with_label)
            except (OSError, tarfile.TarError) as error:
                problems.append(f'{shard}: {error}')
                continue
            if writable:
                writable = _keep(shard, stamp, with_label, index)
        yield index
    if problems:
        raise OSError(
            f'{len(problems)} of {len(shards)} tar files cannot be used. '
            f'Write or copy them again, not compressed: {"; ".join(problems)}'
        )


def _stamp(shard: str, extensions: Sequence[str]) -> dict:
    """What an index must have been made from to be used."""
    status = os.stat(shard)
    return dict(
        version=VERSION,
        size=status.st_size,
        changed=status.st_mtime_ns,
        extensions=sorted(extensions),
    )


def _kept(shard: str, stamp: dict, with_label: bool) -> TarIndex | None:
    try:
        with np.load(index_file(shard), allow_pickle=False) as kept:
            made_from = json.loads(str(kept['made_from']))
            labels = made_from.pop('with_label')
            if made_from != stamp or labels < with_label:
                return None
            names = Texts.unpacked(kept['content'], kept['ends'])
            columns = (kept[name] for name in TarIndex._fields[1:])
            return TarIndex(names, *columns)
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        print_log(
            f'{index_file(shard)} is damaged: it is made anew',
            logger='current',
            level=logging.WARNING,
        )
        return None


def _keep(shard: str, stamp: dict, with_label: bool, index: TarIndex) -> bool:
    """Write an index; whether that was possible."""
    content, ends = index.names.packed()
    made_from = json.dumps(stamp | dict(with_label=with_label))
    try:
        with atomic_write(index_file(shard)) as path, open(path, 'wb') as file:
            np.savez(
                file,
                made_from=made_from,
                content=content,
                ends=ends,
                **dict(zip(TarIndex._fields[1:], index[1:])),
            )
    except OSError as error:
        print_log(
            f'{index_file(shard)} cannot be written, so that each start reads '
            f'the headers of the tar files: {error}',
            logger='current',
            level=logging.WARNING,
        )
        return False
    return True


def _read_headers(
    shard: str, extensions: Sequence[str], with_label: bool
) -> TarIndex:
    endings = tuple(extensions)
    names, offsets, sizes, labels = Texts(), [], [], {}
    with tarfile.open(shard, 'r:') as tar:
        for member in _members(tar):
            if member.name.lower().endswith(endings):
                names.extend([member.name])
                offsets.append(member.offset_data)
                sizes.append(member.size)
                continue
            key, suffix = _key_of(member.name)
            first = key not in labels
            if with_label and (suffix == 'cls' or suffix == 'json' and first):
                content = tar.extractfile(member).read()
                place = f'{shard}: {member.name}'
                labels[key] = _label_of(content, suffix, place)
    found = [labels.get(_key_of(name)[0], UNLABELLED) for name in names]
    columns = (np.array(c, np.int64) for c in (offsets, sizes, found))
    return TarIndex(names, *columns)


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The visible files of a tar file that is whole."""
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


def _label_of(content: bytes, suffix: str, name: str) -> int:
    try:
        if suffix == 'json':
            return int(json.loads(content).get('label', UNLABELLED))
        return int(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f'{name} holds no class number: {content[:50]!r}. Write a whole '
            'number, or with_label=False'
        ) from error
