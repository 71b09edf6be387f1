# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of any number of images in a file, and their names beside them."""

import json
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmmoca.files import atomic_write, write_json

__all__ = [
    'SUFFIXES',
    'FeatureFile',
    'check_names',
    'check_suffix',
    'read_about',
    'read_features',
    'slices',
    'write_feature_file',
]

SUFFIXES = ('.npy', '.parquet')
# Rows that are in memory at a time; those of a row group, too.
ROWS = 8192
# Names of files as they are, whatever their bytes.
_TEXT = dict(encoding='utf-8', errors='surrogateescape', newline='')
# What ends a name in a list of lines.
_BREAKS = ('\n', '\r')


class FeatureFile(NamedTuple):
    """Features that :func:`write_feature_file` wrote.

    Attributes:
        rows: (N, D), float32, read from the disk slice by slice: has a
            length, and ``rows[a:b]`` is an array.
        names: Name of each image, relative to ``about['images']``.
        about: What they were made from.
    """

    rows: 'np.ndarray | _ParquetRows'
    names: Sequence[str]
    about: dict


def _beside(path: Path) -> tuple[Path, Path]:
    """Names and record beside an array."""
    return tuple(
        path.with_name(path.name + end) for end in ('.names.txt', '.json')
    )


def check_suffix(path: str | os.PathLike) -> Path:
    """Raise an error for a file of a format that cannot be written."""
    path = Path(path).expanduser()
    if path.suffix not in SUFFIXES:
        raise ValueError(f'{path} must end in {" or ".join(SUFFIXES)}')
    if path.suffix == '.parquet' and find_spec('pyarrow') is None:
        raise ImportError(f"{path} takes: pip install 'mmmoca[search]'")
    return path


def read_about(path: str | os.PathLike) -> dict:
    """What a file of features was made from.

    Args:
        path: The file, ``.npy`` or ``.parquet``.

    Returns:
        Its record.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has no record, and so was written by others.
    """
    path = check_suffix(path)
    if not path.is_file():
        raise FileNotFoundError(f'there is no file {path}')
    try:
        if path.suffix == '.npy':
            text = _beside(path)[1].read_text()
        else:
            from pyarrow import parquet

            meta = parquet.read_schema(path).metadata or {}
            text = meta[b'mmmoca'].decode()
        return json.loads(text)
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise ValueError(
            f'{path} was not written by tools/embed.py, which leaves a record '
            f'of what the features were made from: {error}'
        ) from error


def read_features(path: str | os.PathLike) -> FeatureFile:
    """Open a file of features.

    Args:
        path: The file, ``.npy`` or ``.parquet``.

    Returns:
        Its rows, which stay on the disk, and their names.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it was written by others.
    """
    path = check_suffix(path)
    about = read_about(path)
    if path.suffix == '.parquet':
        rows = _ParquetRows(path)
        return FeatureFile(rows, rows.names(), about)
    with open(
        _beside(path)[0],
        encoding='utf-8',
        errors='surrogateescape',
        newline='',
    ) as file:
        names = file.read().split('\n')[:-1]
    return FeatureFile(np.load(path, mmap_mode='r'), names, about)


def write_feature_file(
    path: Path, rows: np.ndarray, names: Sequence[str], about: dict
) -> None:
    """Write features, whole or not at all.

    Args:
        path: Where to, ``.npy`` or ``.parquet``.
        rows: Features in a file on the same disk, (N, D), as an array that is
            mapped into memory. The file is moved if it can be.
        names: Names of the images, (N, ), made as they are asked for.
        about: What the features were made from.
    """
    if path.suffix == '.parquet':
        with atomic_write(path) as temporary:
            _write_parquet(temporary, rows, names, about)
        return
    names_file, record = _beside(path)
    with (
        atomic_write(names_file) as temporary,
        open(
            temporary,
            'w',
            encoding='utf-8',
            errors='surrogateescape',
            newline='',
        ) as file,
    ):
        file.writelines(f'{name}\n' for name in names)
    write_json(record, about)
    # The features are there when all that belongs to them is.
    os.replace(rows.filename, path)


def check_names(names: Sequence[str], path: Path) -> None:
    """Refuse names that the file could not hold.

    Args:
        names: Names of the images.
        path: The file.

    Raises:
        ValueError: If one of them has a line break, or is no Unicode for
            parquet.
    """
    for name in names:
        if path.suffix == '.npy' and any(end in name for end in _BREAKS):
            raise ValueError(
                f'{name!r} has a line break, which a list of names has '
                'between them: write .parquet, or rename the file'
            )
        if path.suffix == '.parquet' and not _is_unicode(name):
            raise ValueError(
                f'{name!r} is no Unicode, which parquet asks for: write '
                '.npy, or rename the file'
            )


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write_parquet(
    path: Path, rows: np.ndarray, names: Sequence[str], about: dict
) -> None:
    import pyarrow
    from pyarrow import parquet

    width = rows.shape[1]
    schema = pyarrow.schema(
        [
            ('name', pyarrow.string()),
            ('feature', pyarrow.list_(pyarrow.float32(), width)),
        ],
        metadata=dict(mmmoca=json.dumps(about)),
    )
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(rows), ROWS):
            part = np.asarray(rows[start : start + ROWS])
            texts = [names[i] for i in range(start, start + len(part))]
            values = pyarrow.FixedSizeListArray.from_arrays(
                pyarrow.array(part.reshape(-1)), width
            )
            columns = [pyarrow.array(texts, pyarrow.string()), values]
            writer.write_table(
                pyarrow.Table.from_arrays(columns, schema=schema),
                row_group_size=ROWS,
            )


class _ParquetRows:
    """The features of a parquet file, read as they are asked for."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(path, memory_map=True)
        kind = self._file.schema_arrow.field('feature').type
        self.shape = self._file.metadata.num_rows, kind.list_size

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice) -> np.ndarray:
        start, stop, step = index.indices(len(self))
        # All groups but the last have as many rows.
        size = self._file.metadata.row_group(0).num_rows
        groups = range(start // size, -(-stop // size))
        table = self._file.read_row_groups(list(groups), ['feature'])
        values = table.column('feature').combine_chunks().flatten()
        rows = values.to_numpy().reshape(-1, self.shape[1])
        offset = groups.start * size
        return rows[start - offset : stop - offset : step]

    def names(self) -> list[str]:
        """All names."""
        return self._file.read(['name']).column('name').to_pylist()


def slices(rows: Sequence, size: int = ROWS) -> Iterator[slice]:
    """Slices of rows that are in memory at a time."""
    for start in range(0, len(rows), size):
        yield slice(start, min(start + size, len(rows)))
