# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of any number of images, written to a file that can be resumed."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import closing
from importlib.util import find_spec
from itertools import islice
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

# Images of a part: what is lost at most where a process is killed.
PART = 512


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
            ``feature``, and the same ``OUT.json``.
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
        RuntimeError: If another process writes ``out``.
        ImportError: If ``.parquet`` is asked for and pyarrow is missing.
        ValueError: If ``out`` ends in something else, or cannot hold the name
            of an image (a line break in ``.npy``, a name that is no Unicode
            in ``.parquet``), or as :meth:`Encoder.embed`.
    """
    if batch_size < 1:
        raise ValueError(f'batch_size must be 1 or more but got {batch_size}')
    out = _check_suffix(Path(out).expanduser())
    feature = feature or encoder.feature
    if feature not in FEATURES:
        raise ValueError(
            f'{feature!r} is no feature: choose of {", ".join(FEATURES)}'
        )
    found = open_images(images, encoder.pipeline)
    place = os.path.join(os.path.expanduser(images), '')
    names = [found.path(i).removeprefix(place) for i in range(len(found))]
    kinds = feature.split('-')
    width = encoder.backbone.embed_dims * len(kinds)
    made_from = dict(
        num_heads=encoder.about['num_heads'],
        weights=encoder.weights_digest(),
        preprocessing=encoder.preprocessing._asdict(),
        feature=feature,
        amp=amp,
        images=os.path.abspath(os.path.expanduser(images)),
        number=len(found),
        width=width,
        names=_digest(names, out),
        part=PART,
    )
    made_from = json.loads(json.dumps(made_from))  # lists, as in a file
    record = Path(f'{out}.json')
    if out.exists():
        return _earlier(out, record, made_from)
    folder = out.with_name(f'{out.name}.incomplete')
    begun = folder / 'about.json'
    if begun.is_file():
        _earlier(folder, begun, made_from)
    barrier()
    if get_rank() == 0:
        lock = FolderLock(folder, 'OUT')
        write_json(begun, made_from)
    parts = {
        folder / f'{start:010d}.npy': range(len(found))[start : start + PART]
        for start in range(0, len(found), PART)
    }
    barrier()
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
            batches = islice(stream, -(-len(span) // batch_size))
            _fill(rows, span, batches, feature, skip_unreadable)
            with atomic_write(part) as temporary:
                np.save(temporary, rows)
            done += len(span)
            update(done)
    barrier()
    if get_rank() == 0:
        _join(parts, out, names, encoder.about | made_from)
        lock.release()
        shutil.rmtree(folder)
    barrier()
    return json.loads(record.read_text())


def _check_suffix(out: Path) -> Path:
    if out.suffix not in ('.npy', '.parquet'):
        raise ValueError(f'{out} must end in .npy or .parquet')
    if out.suffix == '.parquet' and find_spec('pyarrow') is None:
        raise ImportError(f"{out} takes: pip install 'mmmoca[search]'")
    return out


def _fill(
    rows: np.ndarray,
    span: range,
    batches: Iterable,
    feature: str,
    skip_unreadable: bool,
) -> None:
    """Write the features of a part into its rows."""
    for batch, embeddings, errors in batches:
        for error in errors.values():
            if not (skip_unreadable and isinstance(error, OSError)):
                raise error
        good = [i for i in range(len(batch)) if i not in errors]
        if good:
            places = batch.start - span.start + np.array(good)
            rows[places] = embeddings.pick(feature).numpy()


def _join(
    parts: dict[Path, range], out: Path, names: list[str], about: dict
) -> None:
    """Make one file of the parts."""
    unreadable = [
        names[span.start + row]
        for part, span in parts.items()
        for row in np.flatnonzero(np.isnan(np.load(part)[:, 0]))
    ]
    write_json(
        f'{out}.json', dict(about, unreadable=unreadable, version=__version__)
    )
    # The features are there when all that belongs to them is.
    write = _write_npy if out.suffix == '.npy' else _write_parquet
    write(out, parts, names, about['width'])


def _digest(names: list[str], out: Path) -> str:
    """SHA-256 of the names, which the file must be able to hold."""
    digest = hashlib.sha256()
    npy = out.suffix == '.npy'
    for name in names:
        if npy and ('\n' in name or '\r' in name):
            raise ValueError(
                f'a list of names cannot hold {name!r}: write .parquet'
            )
        # A name of a column is Unicode, of a list any bytes.
        errors = 'surrogateescape' if npy else 'strict'
        digest.update(name.encode('utf-8', errors) + b'\0')
    return digest.hexdigest()


def _earlier(made: Path, record: Path, made_from: dict) -> dict:
    """The record of what an earlier call made, of the same features."""
    earlier = json.loads(record.read_text()) if record.is_file() else {}
    differ = [k for k in made_from if earlier.get(k) != made_from[k]]
    if differ:
        raise FileExistsError(
            f'{made} was made from something else ({listed(differ)} differ): '
            'give another OUT, or delete it'
        )
    return earlier


def _write_npy(
    out: Path, parts: dict[Path, range], names: list[str], width: int
) -> None:
    with atomic_write(f'{out}.names.txt') as temporary:
        text = ''.join(f'{name}\n' for name in names)
        temporary.write_bytes(text.encode('utf-8', 'surrogateescape'))
    # Not by a map: on a full disk it would crash.
    header = dict(descr='<f4', fortran_order=False, shape=(len(names), width))
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
