# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The protocols in scikit-learn, NumPy and sets, for comparison with ours."""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch.nn.functional import normalize


def knn_judge(feats, labels, k, temperature=0.07):
    """Fit k-NN to a bank, (M, D), with weights exp(cosine / temperature)."""
    return KNeighborsClassifier(
        k,
        metric='cosine',
        algorithm='brute',
        weights=lambda distance: np.exp((1 - distance) / temperature),
    ).fit(feats, labels)


def low_shot_judge(feats, labels, regularization=0.1):
    """Fit the low-shot regression to features from :func:`centre`."""
    # scikit-learn's tolerance applies to the mean over the images.
    return LogisticRegression(
        C=1 / regularization,
        fit_intercept=False,
        max_iter=300,
        tol=1e-4 / len(labels),
    ).fit(np.asarray(feats, np.float64), labels)


def centre(feats):
    """Subtract the mean of each row, (..., D); scale the row to length 1."""
    feats = feats - feats.mean(-1, keepdims=True)
    return feats / np.linalg.norm(feats, axis=-1, keepdims=True)


def agreement_judge(views, k):
    """Return the Jaccard index of neighbours in two views, (N, D) each."""
    near = []
    for view in views:
        view = normalize(view.double())
        sims = (view @ view.T).fill_diagonal_(-2)
        near.append([{*row} for row in sims.topk(k).indices.tolist()])
    return [len(a & b) / len(a | b) for a, b in zip(*near)]


def rank_judge(feats):
    """Return the effective rank of features (N, D)."""
    values = np.linalg.svd(feats, compute_uv=False)
    shares = values / values.sum()
    return np.exp(-(shares * np.log(shares)).sum())
