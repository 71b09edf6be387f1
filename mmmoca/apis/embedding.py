# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of any number of images, written to a file that can be resumed."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from mmengine.dist import barrier, get_rank, get_world_size

from mmmoca.checkpoints import FolderLock
from mmmoca.evaluation.presets import FEATURES
from mmmoca.files import atomic_write, write_json
from mmmoca.messages import listed
from mmmoca.progress import progress_bar
from mmmoca.version import __version__

from .encoder import Encoder
from .images import open_images

__all__ = ['embed_to_file']

# Batches of a part: what is lost at most where a process is killed.
BATCHES = 8
RECORD = 'about.json'
# Names of files as they are, whatever their bytes.
_TEXT = dict(encoding='utf-8', errors='surrogateescape', newline='')


def embed_to_file(
    encoder: Encoder,
    images: str | os.PathLike,
    out: str | os.PathLike,
    feature: str | None = None,
    batch_size: int = 64,
    num_workers: int | None = None,
    amp: bool = False,
    skip_unreadable: bool = False,
    progress: bool = True,
) -> dict:
    """Write the features of images, and go on where an earlier call stopped.

    What is done lies in ``OUT.incomplete`` until all of it is. A part is
    always computed in the same batches, whoever computes it, so that the
    result does not depend on stops. Called by all ranks together, which share
    the parts.

    Args:
        encoder (Encoder): Of :func:`mmmoca.load`.
        images (str | os.PathLike): A folder, shards, or a data set of
            Hugging Face, see :meth:`Encoder.embed`.
        out (str | os.PathLike): ``.npy``, with the names of the images one a
            line in ``OUT.names.txt`` and what they were made from in
            ``OUT.json``; or ``.parquet`` with the columns ``name`` and
            ``feature``.
        feature (str, optional): 'avg', 'cls' or 'cls-avg'; by default what
            k-NN takes of this encoder.
        batch_size (int): Images at a time.
        num_workers (int, optional): See :meth:`Encoder.embed`.
        amp (bool): See :meth:`Encoder.embed`.
        skip_unreadable (bool): Write NaN for an image that cannot be read,
            instead of an error.
        progress (bool): Show a progress bar, on the first rank.

    Returns:
        dict: The record of the file: ``number`` of images, names of those
        ``unreadable``, and what the features were made from.

    Raises:
        FileExistsError: If ``out`` was made from other images or another
            encoder, as a whole or in part. It says what differs.
        FileNotFoundError: If there are no images.
        OSError: For an image that cannot be read; it names the file.
        BlockingIOError: If another process writes ``out``.
        ImportError: If ``.parquet`` is asked for and pyarrow is missing.
        ValueError: If ``out`` ends in something else, or cannot hold the name
            of an image (a line break in ``.npy``, a name that is no Unicode
            in ``.parquet``), or as :meth:`Encoder.embed`.
    """
    if batch_size < 1:
        raise ValueError(f'batch_size must be 1 or more but got {batch_size}')
    out = _check_suffix(Path(out).expanduser())
    found = open_images(images, encoder.pipeline)
    place = os.path.join(os.path.expanduser(images), '')
    names = [found.path(i).removeprefix(place) for i in range(len(found))]
    feature = feature or encoder.feature
    if feature not in FEATURES:
        raise ValueError(
            f'{feature!r} is no feature: choose of {", ".join(FEATURES)}'
        )
    kinds = feature.split('-')
    width = encoder.backbone.embed_dims * len(kinds)
    about = dict(
        encoder.about,
        weights=encoder.weights_digest(),
        preprocessing=encoder.preprocessing._asdict(),
        feature=feature,
        amp=amp,
        images=os.path.abspath(os.path.expanduser(images)),
        number=len(found),
        width=width,
        names=_digest(names, out),
        version=__version__,
    )
    about = json.loads(json.dumps(about))  # tuples become lists, as in a file
    if out.exists():
        earlier = _read_record(out)
        _check_same(out, earlier, about)
        return earlier
    folder = out.with_name(f'{out.name}.incomplete')
    if get_rank() == 0:
        lock = _open_folder(folder, about, BATCHES * batch_size)
    barrier()
    size = json.loads((folder / RECORD).read_text())['part']
    parts = {
        folder / f'{start:010d}.npy': range(len(found))[start : start + size]
        for start in range(0, len(found), size)
    }
    left = [part for part in parts if not part.exists()]
    barrier()  # before any rank goes on writing them
    left = left[get_rank() :: get_world_size()]
    spans = list(map(parts.get, left))
    stream = encoder.stream(found, batch_size, kinds, num_workers, amp, spans)
    show = progress and get_rank() == 0
    total, done = sum(map(len, spans)), 0
    with (
        progress_bar('images', total, show) as update,
        closing(stream),
    ):
        for part, span in zip(left, spans):
            rows = np.full((len(span), width), np.nan, np.float32)
            _fill(rows, span, stream, feature, skip_unreadable)
            with atomic_write(part) as temporary:
                np.save(temporary, rows)
            done += len(span)
            update(done)
    barrier()
    if get_rank() == 0:
        _join(parts, out, names, about)
        lock.release()
        shutil.rmtree(folder)
    barrier()
    return _read_record(out)


def _check_suffix(out: Path) -> Path:
    if out.suffix not in ('.npy', '.parquet'):
        raise ValueError(f'{out} must end in .npy or .parquet')
    if out.suffix == '.parquet' and find_spec('pyarrow') is None:
        raise ImportError(f"{out} takes: pip install 'mmmoca[search]'")
    return out


def _open_folder(folder: Path, about: dict, size: int) -> FolderLock:
    """Make the folder of the parts, or take up that of an earlier call."""
    record = folder / RECORD
    if record.is_file():
        _check_same(folder, json.loads(record.read_text()), about)
    try:
        lock = FolderLock(folder, 'OUT')
    except RuntimeError as error:
        raise BlockingIOError(str(error)) from error
    if not record.is_file():
        write_json(record, dict(about, part=size))
    return lock


def _fill(
    rows: np.ndarray,
    span: range,
    stream: Iterator,
    feature: str,
    skip_unreadable: bool,
) -> None:
    """Write the features of a part into its rows."""
    stop = span.start
    while stop < span.stop:
        batch, embeddings, errors = next(stream)
        for error in errors.values():
            if not (skip_unreadable and isinstance(error, OSError)):
                raise error
        good = [i for i in range(len(batch)) if i not in errors]
        if good:
            places = batch.start - span.start + np.array(good)
            rows[places] = embeddings.pick(feature).numpy()
        stop = batch.stop


def _join(
    parts: dict[Path, range], out: Path, names: list[str], about: dict
) -> None:
    """Make one file of the parts."""
    about['unreadable'] = [
        names[span.start + row]
        for part, span in parts.items()
        for row in np.flatnonzero(np.isnan(np.load(part)[:, 0]))
    ]
    write = _write_npy if out.suffix == '.npy' else _write_parquet
    write(out, parts, names, about)


def _digest(names: list[str], out: Path) -> str:
    """SHA-256 of the names, which the file must be able to hold."""
    digest = hashlib.sha256()
    # Ends of lines; bytes that are no Unicode.
    wrong = re.compile(
        r'[\n\r]' if out.suffix == '.npy' else '[\ud800-\udfff]'
    )
    for name in names:
        if wrong.search(name):
            raise ValueError(
                f'{out.suffix} cannot hold the name {name!r}: rename the '
                'image, or write the other of .npy and .parquet'
            )
        digest.update(name.encode('utf-8', 'surrogatepass') + b'\0')
    return digest.hexdigest()


def _check_same(path: Path, earlier: dict, about: dict) -> None:
    """Refuse to go on with features of something else."""
    # Where the checkpoint lies does not matter, its weights do.
    passing = ('checkpoint', 'layout', 'which', 'version')
    differ = [
        key
        for key in about
        if key not in passing and earlier.get(key) != about[key]
    ]
    if differ:
        raise FileExistsError(
            f'{path} was made from something else ({listed(differ)} differ): '
            'give another OUT, or delete it'
        )


def _read_record(out: Path) -> dict:
    """What a complete file was made from."""
    try:
        if out.suffix == '.npy':
            return json.loads(Path(f'{out}.json').read_text())
        from pyarrow import parquet

        return json.loads(parquet.read_schema(out).metadata[b'mmmoca'])
    except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise FileExistsError(
            f'{out} is there, and tools/embed.py did not write it: give '
            'another OUT'
        ) from error


def _write_npy(
    out: Path, parts: Sequence[Path], names: list[str], about: dict
) -> None:
    with (
        atomic_write(f'{out}.names.txt') as temporary,
        open(temporary, 'w', **_TEXT) as file,
    ):
        file.writelines(f'{name}\n' for name in names)
    write_json(f'{out}.json', about)
    # The features are there when all that belongs to them is. Not by a map:
    # on a full disk it would crash.
    shape = about['number'], about['width']
    header = dict(descr='<f4', fortran_order=False, shape=shape)
    with atomic_write(out) as temporary, open(temporary, 'wb') as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.load(part).tobytes())


def _write_parquet(
    out: Path, parts: dict[Path, range], names: list[str], about: dict
) -> None:
    import pyarrow
    from pyarrow import parquet

    vector = pyarrow.list_(pyarrow.float32(), about['width'])
    schema = pyarrow.schema(
        dict(name=pyarrow.string(), feature=vector),
        metadata=dict(mmmoca=json.dumps(about)),
    )
    with (
        atomic_write(out) as temporary,
        parquet.ParquetWriter(temporary, schema) as writer,
    ):
        for part, span in parts.items():
            values = pyarrow.FixedSizeListArray.from_arrays(
                np.load(part).reshape(-1), about['width']
            )
            texts = pyarrow.array(names[span.start : span.stop])
            writer.write_table(pyarrow.table([texts, values], schema=schema))
