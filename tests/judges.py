# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The protocols' classifiers by scikit-learn, to compare ours with."""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier


def knn_judge(feats, labels, k, temperature=0.07):
    """Nearest neighbours whose votes weigh exp(cosine / temperature).

    Args:
        feats (np.ndarray): Of the bank, (M, D), of any length.
        labels (np.ndarray): Of the bank, (M,).
        k (int): Neighbours that vote.
        temperature (float): Of the votes.

    Returns:
        KNeighborsClassifier: Fitted.
    """
    return KNeighborsClassifier(
        k,
        metric='cosine',
        algorithm='brute',
        weights=lambda distance: np.exp((1 - distance) / temperature),
    ).fit(feats, labels)


def low_shot_judge(feats, labels, regularization=0.1):
    """Logistic regression as the protocol of low-shot classification has it.

    Args:
        feats (np.ndarray): Centred and normalised, (M, D).
        labels (np.ndarray): Of the images, (M,).
        regularization (float): Lambda.

    Returns:
        LogisticRegression: Fitted.
    """
    # Its tolerance is of the mean over the images.
    return LogisticRegression(
        C=1 / regularization,
        fit_intercept=False,
        max_iter=300,
        tol=1e-4 / len(labels),
    ).fit(np.asarray(feats, np.float64), labels)


def centre(feats):
    """Each row minus its mean, at unit length.

    Args:
        feats (np.ndarray): (..., D).

    Returns:
        np.ndarray: (..., D).
    """
    feats = feats - feats.mean(-1, keepdims=True)
    return feats / np.linalg.norm(feats, axis=-1, keepdims=True)
