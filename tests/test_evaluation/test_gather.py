# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Shards of one process and of several."""

import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.evaluation import gather_samples
from tests.helpers.distributed import run_processes


def _gather():
    ids = torch.tensor(([], [4, 0, 2, 0])[get_rank()], dtype=torch.int64)
    feats = torch.stack([ids, 10 * ids], 1) if len(ids) else ids.view(0, 0)
    return gather_samples(ids, feats.half(), ids + 7)


@pytest.mark.processes
def test_an_empty_shard():
    for ids, feats, labels in run_processes(_gather, 2):
        assert ids.tolist() == [0, 2, 4]
        assert feats.dtype == torch.float16
        assert feats.tolist() == [[0, 0], [2, 20], [4, 40]]
        assert labels.tolist() == [7, 9, 11]
