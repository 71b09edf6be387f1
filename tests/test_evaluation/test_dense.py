# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Segmentation from fixed patch features, and RankMe."""

import numpy as np
import pytest
import torch
from mmseg.evaluation import IoUMetric

from mmmoca.evaluation.metrics import mean_iou
from mmmoca.evaluation.protocols.in_context import in_context_masks
from mmmoca.evaluation.protocols.linear_seg import linear_masks
from mmmoca.evaluation.rank_me import rank_me
from tests.helpers.judges import rank_judge


def scenes(count, seed):
    """Return maps (N, 8, 4, 4) of two patterns and noise, and masks."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 2, (count, 4, 4))
    maps = rng.normal(0, 0.3, (count, 8, 4, 4))
    maps[:, 0] += 2 * cells - 1
    masks = cells.repeat(4, axis=1).repeat(4, axis=2).astype(np.uint8)
    masks[:, 0] = 255
    return torch.from_numpy(maps).half(), [*masks]


def test_iou_is_that_of_mmseg():
    rng = np.random.default_rng(0)
    truth = [rng.integers(0, 4, (9, 7)).astype(np.uint8) for _ in range(3)]
    truth[0][:3] = 255
    found = [rng.integers(0, 4, (9, 7)) for _ in range(3)]
    metric = IoUMetric()
    metric.dataset_meta = dict(classes=tuple('abcd'))
    samples = [
        dict(
            pred_sem_seg=dict(data=torch.from_numpy(f)[None]),
            gt_sem_seg=dict(data=torch.from_numpy(t).long()[None]),
        )
        for f, t in zip(found, truth)
    ]
    metric.process({}, samples)
    expected = metric.compute_metrics(metric.results)['mIoU']
    assert mean_iou(found, truth) == pytest.approx(expected, abs=5e-3)


@pytest.mark.slow
def test_masks_are_found():
    train, val = scenes(24, 0), scenes(6, 1)
    found, size = in_context_masks(train, val, 150)
    assert size == 24 * 6 and mean_iou(found, val[1]) > 75
    # Borders of cells are left out because of the bilinear interpolation.
    learned = linear_masks(train, val, steps=400)
    assert mean_iou(learned, val[1]) > 75


def test_rank_me():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 12)) * np.linspace(0.1, 3, 12)
    expected = rank_judge(x)
    assert rank_me(torch.from_numpy(x)) == pytest.approx(expected, rel=1e-4)
    assert rank_me(torch.ones(30, 8)) == pytest.approx(1, abs=1e-3)
    assert rank_me(torch.eye(6)) == pytest.approx(6, rel=1e-5)
    assert np.isnan(rank_me(torch.full((3, 3), torch.inf)))
