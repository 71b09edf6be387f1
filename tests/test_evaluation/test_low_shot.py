# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Logistic regression minimises what its definition says."""

import numpy as np
import pytest
import torch

from mmmoca.evaluation.protocols.lowshot import fit_low_shot, low_shot_features


def _gradient(judge, feats, labels, regularization=0.1):
    """Return the gradient of the cross-entropies plus penalty, (C, D)."""
    feats = feats.astype(np.float64)
    wrong = judge.predict_proba(feats)
    wrong[np.arange(len(labels)), labels] -= 1
    weights = judge.coef_
    if len(weights) == 1:  # the difference of two rows that sum to 0
        weights = np.concatenate([-weights, weights]) / 2
    return wrong.T @ feats + regularization * weights


@pytest.mark.parametrize('classes', [2, 5])
def test_minimises_what_it_says(classes):
    """A convex function has only one point with zero gradient."""
    rng = np.random.default_rng(classes)
    feats = low_shot_features(torch.from_numpy(rng.normal(size=(40, 6))))
    known = feats.numpy(), np.arange(40) % classes
    for factor in (0.1, 0.3):
        judge, converged = fit_low_shot(*known, factor, 3000, 1e-9)
        assert converged
        assert np.abs(_gradient(judge, *known, factor)).max() < 1e-6


def test_converges_on_many_classes(recwarn):
    """With one image per class, a mean over images would hide the slope."""
    rng = np.random.default_rng(0)
    feats = low_shot_features(torch.from_numpy(rng.normal(size=(200, 128))))
    known = feats.numpy().astype(np.float32), np.arange(200)
    judge, converged = fit_low_shot(*known)
    assert converged
    assert np.abs(_gradient(judge, *known)).max() < 1e-4
    assert not fit_low_shot(*known, max_iter=2)[1]
    assert not recwarn
