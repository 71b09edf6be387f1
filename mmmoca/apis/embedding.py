# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writes features of any number of images to a file, and can resume."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import numpy as np
from mmengine.dist import barrier, get_rank, get_world_size

from mmmoca.checkpoints.run_folder import FolderLock
from mmmoca.datasets.image_places import stored_in
from mmmoca.files import atomic_write, write_json
from mmmoca.messages import listed
from mmmoca.progress import progress_bar
from mmmoca.requirements import import_extra
from mmmoca.version import __version__

from .encoder import Encoder
from .features import KINDS, check_batch_size, refuse
from .images import Images
from .opening import open_images

# Number of images in a part. A killed process loses at most one part.
PART = 512


def embed_to_file(
    encoder: Encoder,
    images: str | os.PathLike | Sequence[str] | Images,
    out: str | os.PathLike,
    feature: str | None = None,
    batch_size: int = 64,
    num_workers: int | None = None,
    amp: bool = False,
    skip_unreadable: bool = False,
    progress: bool = True,
) -> dict:
    """Write features of images to a file, or resume an earlier call.

    The images are divided into parts. Finished parts are kept in the folder
    ``OUT.incomplete`` until all parts are finished (``OUT`` is the path
    ``out``). The name of a part includes a digest of the call's input. A part
    is always computed in the same batches, so the result depends neither on
    interruptions nor on the number of processes. Parts and files that are cut
    short are written again.

    All ranks must call this together. Each computes some of the parts.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        images (str | os.PathLike | Sequence[str] | Images): A folder of
            images or shards, or a Hugging Face data set, see
            :meth:`Encoder.embed`; or a list of image files.
        out (str | os.PathLike): The file. A ``.npy`` file contains only the
            features; the names of the images are written to
            ``OUT.names.txt``, one per line. A ``.parquet`` file has the
            columns ``name`` and ``feature``. In both cases the returned record
            is also written to ``OUT.json``.
        feature (str, optional): 'avg', 'cls' or 'cls-avg', see
            :meth:`Embeddings.pick`. Defaults to ``encoder.feature``.
        batch_size (int): Images in a batch.
        num_workers (int, optional): See :meth:`Encoder.embed`.
        amp (bool): See :meth:`Encoder.embed`.
        skip_unreadable (bool): Write NaN for an image that cannot be read,
            instead of raising an error.
        progress (bool): Show a progress bar, on the first rank.

    Returns:
        dict: The record of the file. It includes the ``number`` of images,
        the names of ``unreadable`` images, and all that determines the
        features.

    Raises:
        FileExistsError: If ``out``, or a finished part of it, was made from
            other input. The message says what differs.
        FileNotFoundError: If there are no images.
        OSError: If an image cannot be read, or could not be read when ``out``
            was made. The message names it.
        RuntimeError: If another process writes to ``out``.
        ImportError: If ``out`` is ``.parquet`` and pyarrow is missing.
        TypeError: For images in memory, because they have no names.
        ValueError: If ``out`` ends in neither ``.npy`` nor ``.parquet``; if
            the name of an image has line breaks (for ``.npy``) or is not valid
            Unicode (for ``.parquet``); or as in :meth:`Encoder.embed`.
    """
    out = Path(out).expanduser()
    feature = feature or encoder.feature
    _check_arguments(out, feature, batch_size)
    found = open_images(images, encoder.pipeline)
    place = ''
    if isinstance(images, (str, os.PathLike)):
        place = os.path.expanduser(images)
    paths = [found.path(i) for i in range(len(found))]
    names = _names(paths, place, out)
    kinds = feature.split('-')
    width = encoder.backbone.embed_dims * len(kinds)
    made_from = encoder.identity() | dict(
        feature=feature,
        amp=amp,
        images=place and os.path.abspath(place),
        number=len(found),
        width=width,
        names=list_digest(paths, names),
        part=PART,
    )
    made_from = json.loads(json.dumps(made_from))  # tuples become lists
    record = Path(f'{out}.json')
    earlier = _earlier(out, record, made_from)
    if earlier and _is_complete(out, names, width):
        return _accept(earlier, skip_unreadable)
    folder = out.with_name(f'{out.name}.incomplete')
    begun = folder / 'about.json'
    _earlier(begun, begun, made_from)
    digest = digest_of(made_from)[:16]
    rank = get_rank()
    barrier()
    with ExitStack() as stack:
        if rank == 0:
            stack.callback(FolderLock(folder, 'OUT').release)
            write_json(begun, made_from)
        numbers = range(len(found))
        parts = {
            folder / f'{digest}-{first:010d}.npy': numbers[first:][:PART]
            for first in numbers[::PART]
        }
        barrier()
        left = [
            part
            for part, span in parts.items()
            if not is_whole(part, (len(span), width))
        ]
        barrier()  # before any rank writes another part
        left = left[rank :: get_world_size()]
        spans = [parts[part] for part in left]
        stream = encoder.stream(
            found, batch_size, kinds, num_workers, amp, spans
        )
        stack.enter_context(closing(stream))
        total, done = sum(map(len, spans)), 0
        update = stack.enter_context(
            progress_bar('images', total, progress and rank == 0)
        )
        for part, span in zip(left, spans):
            rows = np.full((len(span), width), np.nan, np.float32)
            batches = islice(stream, -(-len(span) // batch_size))
            _fill(rows, span, batches, feature, skip_unreadable)
            with atomic_write(part) as temporary:
                np.save(temporary, rows)
            done += len(span)
            update(done)
        found.say_oddities()
        barrier()
        if rank == 0:
            _join(parts, out, names, encoder.metainfo | made_from)
    if rank == 0:
        shutil.rmtree(folder)
    barrier()
    return _accept(json.loads(record.read_text()), skip_unreadable)


def _fill(
    rows: np.ndarray,
    span: range,
    batches: Iterable[tuple],
    feature: str,
    skip_unreadable: bool,
) -> None:
    """Fill the array of a part with the features of its images.

    Args:
        rows (np.ndarray): The array, (len(span), D). The rows of images that
            cannot be read are not changed.
        span (range): The indices of the part's images.
        batches (Iterable[tuple]): What :meth:`Encoder.stream` yields.
        feature (str): See :meth:`Embeddings.pick`.
        skip_unreadable (bool): Do not raise an error for images that
            cannot be read.
    """
    for batch, embeddings, errors in batches:
        refuse(errors, skip_unreadable)
        good = [i for i in range(len(batch)) if i not in errors]
        if good:
            places = batch.start - span.start + np.array(good)
            rows[places] = embeddings.pick(feature).numpy()


def _check_arguments(out: Path, feature: str, batch_size: int) -> None:
    check_batch_size(batch_size)
    if not set(feature.split('-')) <= set(KINDS) - {'patches'}:
        raise ValueError(
            f'{feature!r} is not a feature: choose avg, cls or cls-avg'
        )
    if out.suffix not in ('.npy', '.parquet'):
        raise ValueError(f'{out} must end in .npy or .parquet')
    if out.suffix == '.parquet':
        import_extra('pyarrow', str(out), 'search')


def _names(paths: list[str | None], place: str, out: Path) -> list[str]:
    """Return the names of images; refuse names that ``out`` cannot contain."""
    if None in paths:
        raise TypeError('images in memory have no names: use Encoder.embed')
    names = [path.removeprefix(os.path.join(place, '')) for path in paths]
    # Line breaks would split names in the list; surrogates are not valid
    # Unicode.
    odd = '[\n\r]' if out.suffix == '.npy' else '[\ud800-\udfff]'
    for name in names:
        if re.search(odd, name):
            raise ValueError(
                f'{out.suffix} cannot contain the name {name!r}: choose the '
                'other format (.npy or .parquet)'
            )
    return names


def _is_complete(out: Path, names: Sequence[str], width: int) -> bool:
    """Return whether a file of features and its list of names are complete."""
    listing = Path(f'{out}.names.txt')
    named = out.suffix == '.parquet' or (
        listing.is_file() and listing.read_bytes() == _lines(names)
    )
    return named and is_whole(out, (len(names), width))


def _lines(names: Sequence[str]) -> bytes:
    """Return the content of ``OUT.names.txt``."""
    text = ''.join(f'{name}\n' for name in names)
    return text.encode('utf-8', 'surrogateescape')


def _accept(record: dict, skip_unreadable: bool) -> dict:
    """Return a record. Refuse unreadable images that may not be skipped."""
    unreadable = record['unreadable']
    if unreadable and not skip_unreadable:
        raise OSError(
            f'{len(unreadable)} images cannot be read, such as '
            f'{unreadable[0]!r}: allow NaN as their features with '
            'skip_unreadable (--skip-unreadable), or repair the images and '
            'choose another OUT'
        )
    return record


def digest_of(about: object) -> str:
    """Return the SHA-256 of an object's JSON."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def list_digest(
    paths: Sequence[str | None], names: Sequence[str] | None = None
) -> str:
    """Return the SHA-256 of the names of images, or of their paths, in order.

    For local files it also depends on size and modification time, which stand
    for the content of the file.
    """
    digest = hashlib.sha256()
    for name, path in zip(names or paths, paths):
        file = stored_in(path) or path
        digest.update(f'{name}\0'.encode('utf-8', 'surrogateescape'))
        if os.path.isfile(file):
            status = os.stat(file)
            digest.update(f'{status.st_size}\0{status.st_mtime_ns}\n'.encode())
    return digest.hexdigest()


def is_whole(path: Path, shape: tuple, dtype: type = np.float32) -> bool:
    """Return whether a file of features exists and has all its rows.

    Args:
        path (Path): A ``.npy`` file, or a ``.parquet`` file of
            :func:`embed_to_file`.
        shape (tuple): Shape of the features, the number of rows first.
        dtype (type): Type of the numbers, only checked for ``.npy``. Defaults
            to float32.
    """
    try:
        if path.suffix == '.parquet':
            from pyarrow import parquet

            return parquet.read_metadata(path).num_rows == shape[0]
        rows = np.lib.format.open_memmap(path, mode='r')
    except (OSError, ValueError):
        return False
    return rows.shape == shape and rows.dtype == dtype


def _earlier(made: Path, record: Path, made_from: dict) -> dict:
    """Return the record of an earlier call with the same input, or {}.

    Refuse what an earlier call made from other input.
    """
    if not made.exists():
        return {}
    try:
        earlier = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):  # missing, or damaged
        earlier = None
    earlier = earlier if isinstance(earlier, dict) else {}
    differ = [
        'names, sizes or times of files' if k == 'names' else k
        for k in made_from
        if earlier.get(k) != made_from[k]
    ]
    if differ:
        raise FileExistsError(
            f'{made} was made from other input ({listed(differ)} differ): '
            'delete it, or choose another OUT'
        )
    return earlier


def _join(
    parts: dict[Path, range], out: Path, names: list[str], record: dict
) -> None:
    """Join the parts into one file. Its companion files are written first."""
    unreadable = [
        names[span.start + row]
        for part, span in parts.items()
        for row in np.flatnonzero(np.isnan(np.load(part)[:, 0]))
    ]
    write_json(
        f'{out}.json', dict(record, unreadable=unreadable, version=__version__)
    )
    shape = len(names), record['width']
    if out.suffix == '.parquet':
        _write_parquet(out, parts, names, shape[1])
        return
    with atomic_write(f'{out}.names.txt') as temporary:
        temporary.write_bytes(_lines(names))
    # Writing to a memory map would crash the process on a full disk.
    header = dict(descr='<f4', fortran_order=False, shape=shape)
    with atomic_write(out) as temporary, open(temporary, 'wb') as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.load(part).tobytes())


def _write_parquet(
    out: Path, parts: dict[Path, range], names: list[str], width: int
) -> None:
    import pyarrow
    from pyarrow import parquet

    vector = pyarrow.list_(pyarrow.float32(), width)
    schema = pyarrow.schema(dict(name=pyarrow.string(), feature=vector))
    with (
        atomic_write(out) as temporary,
        parquet.ParquetWriter(temporary, schema) as writer,
    ):
        for part, span in parts.items():
            values = pyarrow.FixedSizeListArray.from_arrays(
                np.load(part).reshape(-1), width
            )
            texts = pyarrow.array(names[span.start : span.stop])
            writer.write_table(pyarrow.table([texts, values], schema=schema))
