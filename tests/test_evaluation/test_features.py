# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of images, and those of several processes."""

import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.evaluation import gather_samples
from mmmoca.evaluation.features import raw_pixels
from tests.helpers.distributed import run_processes


def test_raw_pixels_of_large_images():
    ramp = torch.linspace(-1, 1, 96).expand(1, 1, 64, 96)
    pixels = raw_pixels(ramp).reshape(32, 48)
    expected = raw_pixels(ramp.reshape(1, 1, 64, 48, 2).mean(-1)[:, :, ::2])
    torch.testing.assert_close(
        pixels, expected.reshape(32, 48), atol=0.02, rtol=0
    )


def _gather():
    ids = torch.tensor(([], [4, 0, 2, 0])[get_rank()], dtype=torch.int64)
    feats = torch.stack([ids, 10 * ids], 1) if len(ids) else ids.view(0, 0)
    return gather_samples(ids, feats.half(), ids + 7)


@pytest.mark.processes
def test_shards_are_joined():
    """One is empty, the other one has a sample twice."""
    for ids, feats, labels in run_processes(_gather, 2):
        assert ids.tolist() == [0, 2, 4]
        assert feats.dtype == torch.float16
        assert feats.tolist() == [[0, 0], [2, 20], [4, 40]]
        assert labels.tolist() == [7, 9, 11]
