# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Lists the images in a tar file, whichever program has written it."""

import hashlib
import json
import os
import posixpath
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from mmmoca.files import check_regular, write_text
from mmmoca.messages import printable, warn

from .file_extensions import count_left_out

# An image in a tar file: its name, the offset and number of its bytes, and its
# class or None.
Member = tuple[str, int, int, int | None]
# Version of the index format. An index of another version is rebuilt.
_FORM = 3
# Largest number of bytes that are read from a KEY.cls or KEY.json.
_MOST_BYTES = 2**24


def read_index(
    shard: str, extensions: Sequence[str], left_out: Counter[str] | None = None
) -> Iterator[Member]:
    """Find the images of a tar file in the layout of WebDataset.

    A link counts as the file in the archive that it points to. The headers are
    read once, and an index of the images is saved next to the shard, as
    ``SHARD.index.json``. A later call uses the index if it is intact, and if
    the extensions and the shard's size and modification time have not changed.

    Args:
        shard (str): Path of the tar file.
        extensions (Sequence[str]): Endings of images, lower-case.
        left_out (Counter[str], optional): Counts the files that are neither
            images nor labels, see :func:`with_extension`.

    Returns:
        The images, in their order in the tar file.

    Raises:
        OSError: If the file cannot be read, is compressed, damaged or cut
            off, or a member is sparse or larger than the rest of the file.
            The message names the member.
    """
    status, file = os.stat(shard), Path(f'{shard}.index.json')
    made_from = [status.st_size, status.st_mtime_ns, sorted(extensions), _FORM]
    kept = _kept_index(file, made_from)
    if kept is None:
        others: Counter[str] = Counter()
        try:
            images = _read_headers(shard, tuple(extensions), others)
        # Readers raise a dozen kinds of errors for damaged files.
        except Exception as error:
            raise OSError(
                f'{printable(shard)} cannot be used: {printable(error)}. '
                'Write or copy it again, without compression'
            ) from error
        kept = dict(
            made_from=made_from, columns=[*zip(*images)], left_out=others
        )
        text = json.dumps(kept)
        try:
            write_text(file, json.dumps([_digest(text), text]))
        except OSError:
            warn(
                f'cannot write an index to {printable(file.parent)}: each run '
                'must read the headers of the tar files again',
                UserWarning,
            )
    if left_out is not None:
        left_out.update(kept['left_out'])
    return zip(*kept['columns'])


def _kept_index(file: Path, made_from: list) -> dict | None:
    """Return the kept index of a shard; None if it is damaged or outdated."""
    try:
        check_regular(file)
        digest, text = json.loads(file.read_text())
        kept = json.loads(text) if digest == _digest(text) else {}
        return kept if kept['made_from'] == made_from else None
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _digest(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def _read_headers(
    shard: str, extensions: tuple[str, ...], left_out: Counter[str]
) -> list[Member]:
    taken: dict[str, str] = {}  # normalised path -> name
    files: dict[str, tuple[int, int]] = {}
    links: dict[str, str] = {}
    with tarfile.open(shard, 'r:') as tar:
        for member in _members(tar, os.stat(shard).st_size):
            name = member.name
            place = posixpath.normpath(name)
            if member.isreg():
                files[place] = member.offset_data, member.size
                links.pop(place, None)  # the last entry of a name counts
            else:
                # A symbolic link is relative to its folder; a hard link is
                # not.
                above = posixpath.dirname(name) * member.issym()
                target = posixpath.join(above, member.linkname)
                links[place] = posixpath.normpath(target)
            if '/.' in f'/{name.removeprefix("./")}':
                continue  # hidden
            if name.lower().endswith(extensions) or _is_label(name):
                # If images or labels have the same name, the last one counts.
                replaced = taken.pop(place, None)
                if replaced is not None and not _is_label(name):
                    left_out['replaced by a later file of the same name'] += 1
                taken[place] = name
            else:
                count_left_out(name, left_out)
        found = {
            name: files.get(_end_of(place, links))
            for place, name in taken.items()
        }
        lost = [name for name in found if found[name] is None]
        if lost:
            left_out['that are links to no file in the archive'] += len(lost)
        labels = _labels(tar.fileobj, found)
    return [
        (name, *span, labels.get(key_of(name)[0]))
        for name, span in found.items()
        if span is not None and not _is_label(name)
    ]


def _labels(
    file: BinaryIO, found: dict[str, tuple[int, int] | None]
) -> dict[str, int | None]:
    """Return each sample's label, from KEY.cls or else from KEY.json."""
    labels = {}
    for name, span in found.items():
        if span is not None and _is_label(name):
            key, suffix = key_of(name)
            label = _label_of(file, *span)
            if suffix == 'cls':
                labels[key] = label
            else:
                labels.setdefault(key, label)
    return labels


def _is_label(name: str) -> bool:
    return key_of(name)[1] in ('cls', 'json')


def _end_of(place: str, links: dict[str, str]) -> str:
    """Return the end of a chain of links; if circular, one of the links."""
    seen = set()
    while place in links and place not in seen:
        seen.add(place)
        place = links[place]
    return place


def _members(tar: tarfile.TarFile, end: int) -> Iterator[tarfile.TarInfo]:
    """Yield the files and links of a tar file; raise if it is damaged."""
    if tar.firstmember is None:
        return  # Python 3.10 cannot read further in an empty file
    name = 'its beginning'
    while True:
        try:
            member = tar.next()
        except Exception as error:
            raise tarfile.ReadError(f'after {name}: {error}') from error
        if member is None:
            break
        # tarfile would keep a list of all earlier members.
        tar.members.clear()
        name, size = member.name, member.size
        if not 0 <= size <= end - member.offset_data * member.isreg():
            raise tarfile.ReadError(
                f'{name} claims {size} bytes, which the file does not have'
            )
        if member.isreg() or member.issym() or member.islnk():
            if member.issparse():
                raise tarfile.ReadError(f'{name} is sparse')
            yield member
    _check_end(tar)


def _check_end(tar: tarfile.TarFile) -> None:
    """Raise if data follow what Python takes for the end of the archive."""
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(tarfile.BLOCKSIZE).strip(b'\0'):
        raise tarfile.ReadError(f'damaged or cut off at byte {tar.offset}')
    while rest := tar.fileobj.read(2**20):
        if rest.strip(b'\0'):
            raise tarfile.ReadError(
                'another archive follows its end: join them with `tar -A`'
            )


def key_of(name: str) -> tuple[str, str]:
    """Split a file name at its first dot into a sample key and the rest.

    The split is that of :func:`webdataset.tariterators.base_plus_ext`.
    """
    folder, slash, file = name.rpartition('/')
    key, _, suffix = file.partition('.')
    return folder + slash + key, suffix.lower()


def _label_of(file: BinaryIO, offset: int, size: int) -> int | None:
    """Return the number in KEY.cls, or ``label`` in KEY.json, or None."""
    file.seek(offset)
    content = file.read(min(size, _MOST_BYTES)).strip()
    try:
        if content.isdigit():
            label = int(content)
        else:
            label = json.loads(content)['label']
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    is_class = type(label) is int and 0 <= label < 2**31
    return label if is_class else None
