# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""In-context segmentation equals a computation in NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmmoca.evaluation import memory
from mmmoca.evaluation.memory import check_memory
from mmmoca.evaluation.protocols.in_context import (
    PatchBank,
    choose_patches,
    label_shares,
)

CLASSES, K, T = 4, 5, 0.1


def maps_and_masks(count, seed):
    """Return maps (N, 6, 3, 4) and masks of 2 x 3 pixels per patch."""
    rng = np.random.default_rng(seed)
    maps = rng.normal(size=(count, 6, 3, 4)).astype(np.float32)
    masks = rng.integers(0, CLASSES - 1, (count, 6, 12))  # never the last
    masks[rng.random(masks.shape) < 0.2] = 255
    masks[0, :2, :3] = 255  # a patch without a label
    return torch.from_numpy(maps), torch.from_numpy(masks)


def _shares(masks):
    """Compute shares with a loop over patches, (N, L, C)."""
    patches = [
        np.bincount(mask[y : y + 2, x : x + 3].ravel(), minlength=256)[
            :CLASSES
        ]
        for mask in masks.numpy()
        for y in range(0, 6, 2)
        for x in range(0, 12, 3)
    ]
    return np.array(patches).reshape(len(masks), 12, CLASSES) / 6


@given(
    patch=st.tuples(*[st.integers(1, 4)] * 2),
    grid=st.tuples(*[st.integers(1, 4)] * 2),
    classes=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_shares_of_classes(patch, grid, classes, seed):
    """Each patch has its own shares; other labels count for no class."""
    (p, q), (rows, columns) = patch, grid
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, classes + 1, (2, p * rows, q * columns))
    masks[masks == classes] = 255
    found = label_shares(torch.from_numpy(masks), grid, classes)
    assert found.shape == (2, rows * columns, classes)
    for image, y, x in np.ndindex(2, rows, columns):
        part = masks[image, p * y : p * y + p, q * x : q * x + q]
        expected = [(part == label).mean() for label in range(classes)]
        np.testing.assert_allclose(
            found[image, columns * y + x], expected, rtol=1e-6
        )


def test_rare_classes_are_chosen_first():
    shares = torch.zeros(100, 3)
    shares[:, 0] = 1
    shares[7] = torch.tensor([0.0, 1.0, 0.0])
    shares[50:] = 0  # without a label
    drawn = [
        choose_patches(shares, 5, torch.Generator().manual_seed(i)).tolist()
        for i in range(30)
    ]
    assert sum(7 in rows for rows in drawn) >= 25  # an even draw: 3
    assert len({*map(tuple, drawn)}) == 30 and max(map(max, drawn)) < 50
    every = choose_patches(shares, 99, torch.Generator())
    assert every.tolist() == list(range(50))


def test_votes_of_the_nearest_patches():
    """NumPy gives the same votes for a bank of all patches."""
    (maps, masks), (queries, _) = maps_and_masks(5, 0), maps_and_masks(3, 1)
    bank = PatchBank([(range(5), maps, masks)], CLASSES, 99, 5)
    shares = _shares(masks).reshape(-1, CLASSES)
    known = shares.sum(axis=1) > 0
    assert bank.size == known.sum() < 60

    def rows(x):
        x = x.numpy().transpose(0, 2, 3, 1).reshape(-1, 6).astype(float)
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    sims = rows(queries) @ rows(maps)[known].T
    near = np.argsort(-sims, axis=1)[:, :K]
    weights = np.exp(np.take_along_axis(sims, near, 1) / T)
    weights /= weights.sum(axis=1, keepdims=True)
    votes = (weights[..., None] * shares[known][near]).sum(axis=1)
    votes = votes.reshape(3, 3, 4, CLASSES).transpose(0, 3, 1, 2)
    found = bank.predict(queries, K, T)
    np.testing.assert_allclose(found, votes, atol=1e-3)  # shares in float16


def test_banks_that_memory_cannot_hold(monkeypatch, tmp_path):
    monkeypatch.setattr('os.sysconf', lambda name: 1000)  # 1000 x 1000
    check_memory('patches', 1000, 1000)
    with pytest.raises(ValueError, match='999'):
        check_memory('patches', 1000, 1001)
    monkeypatch.setattr(memory, 'GROUPS', tmp_path)
    monkeypatch.setattr(memory, 'OWN', tmp_path / 'own')
    memory.OWN.write_text('0::/job\n')
    (tmp_path / 'job').mkdir()
    # The job and its container have limits: the lower one counts.
    for job, container, fits in (
        ('max', 'max', 1000),
        ('max', '500000', 500),
        ('400000', '500000', 400),
    ):
        (tmp_path / 'job' / 'memory.max').write_text(f'{job}\n')
        (tmp_path / 'memory.max').write_text(f'{container}\n')
        check_memory('patches', fits, 1000)
        with pytest.raises(ValueError, match=str(fits)):
            check_memory('patches', fits + 1, 1000)
