# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of images, and those of several processes."""

import numpy as np
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


def _share(rng):
    """Samples of a rank; some have none, some have a sample twice."""
    ids = torch.from_numpy(rng.integers(0, 12, rng.integers(0, 9)))
    feats = torch.stack([ids, 10 * ids], 1) if len(ids) else ids.view(0, 0)
    return ids, feats.half(), ids + 7


def _gather():
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        found.append(gather_samples(*[_share(rng), _share(rng)][get_rank()]))
    return found


@pytest.mark.processes
def test_shards_are_joined():
    """By the number of the sample, whoever has it."""
    for found in run_processes(_gather, 2):
        for seed, (ids, feats, labels) in enumerate(found):
            rng = np.random.default_rng(seed)
            first, second = _share(rng), _share(rng)
            expected = torch.cat((first[0], second[0])).unique()
            assert torch.equal(ids, expected)
            assert torch.equal(labels, expected + 7)
            assert feats.dtype == torch.float16
            assert feats.tolist() == [[i, 10 * i] for i in ids.tolist()]
