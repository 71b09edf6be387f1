# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The nearest of many features: exact from the disk, or by FAISS."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmmoca.evaluation import knn_search
from mmmoca.files import whole

from .feature_files import FeatureFile, slices

__all__ = ['faiss_search', 'nearest']

# Rows that FAISS learns its cells from, for each of them.
TRAINING = 64


class _UnitRows:
    """Rows of L2 norm 1, normalised as they are read."""

    def __init__(self, features: FeatureFile) -> None:
        self._rows = features.rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: slice) -> Tensor:
        part = torch.from_numpy(np.array(self._rows[rows]))
        # An image that could not be read is like no other.
        return F.normalize(part, dim=1).nan_to_num_(0)


def nearest(
    features: FeatureFile,
    query: Tensor,
    count: int,
    device: torch.device | str = 'cpu',
) -> tuple[Tensor, Tensor]:
    """The nearest features of each query by cosine similarity, exact.

    Reads the file once, part by part.

    Args:
        features (FeatureFile): What to search in.
        query (Tensor): (Q, D), of any norm.
        count (int): How many for each; all of them if there are no more.
        device (torch.device | str): Where to compare.

    Returns:
        Tuple[Tensor, Tensor]: Cosine similarities, descending, and rows,
        int64, (Q, count) each, on the CPU.
    """
    query = F.normalize(query.float(), dim=1).to(device)
    sims, rows = knn_search(query, _UnitRows(features), count)
    return sims.cpu(), rows.cpu()


def faiss_search(
    features: FeatureFile,
    path: str | os.PathLike,
    query: Tensor,
    count: int,
    probes: int = 32,
) -> tuple[Tensor, Tensor]:
    """The same by an index of FAISS: some neighbours may be missed.

    The index is built by the first call and kept beside the features. Of its
    cells, as many as four times the root of N, those nearest to a query are
    looked into.

    Args:
        features (FeatureFile): What to search in.
        path (str | os.PathLike): Its file; the index is ``PATH.faiss``.
        query (Tensor): (Q, D), of any norm.
        count (int): How many for each.
        probes (int): Cells that are looked into. Defaults to 32.

    Returns:
        Tuple[Tensor, Tensor]: As :func:`nearest`; rows are -1 where the cells
        have fewer features.

    Raises:
        ImportError: If FAISS is missing.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "--faiss takes: pip install 'mmmoca[search]'"
        ) from error
    file = Path(f'{os.fspath(path)}.faiss')
    fresh = file.is_file() and file.stat().st_mtime >= os.path.getmtime(path)
    if not fresh:
        index = _build_index(_UnitRows(features))
        with whole(file) as temporary:
            faiss.write_index(index, str(temporary))
    index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    index.nprobe = probes
    query = F.normalize(query.float(), dim=1)
    sims, rows = index.search(query.numpy(), count)
    return torch.from_numpy(sims), torch.from_numpy(rows)


def _build_index(rows: _UnitRows) -> object:
    import faiss

    cells = max(1, min(round(4 * len(rows) ** 0.5), len(rows) // 39))
    width = rows[:1].shape[1]
    index = faiss.index_factory(
        width, f'IVF{cells},Flat', faiss.METRIC_INNER_PRODUCT
    )
    # Of slices spread over all rows: images of a class lie side by side.
    wanted = TRAINING * cells
    parts = list(slices(range(len(rows))))
    each = -(-wanted // len(parts))
    training = [
        rows[part][:: max(1, (part.stop - part.start) // each)]
        for part in parts
    ]
    index.train(torch.cat(training).numpy())
    for part in parts:
        index.add(rows[part].numpy())
    return index
