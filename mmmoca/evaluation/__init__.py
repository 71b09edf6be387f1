# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Evaluation protocols: pure functions and the metrics built on them."""

from .knn import gather_samples, knn_scores, knn_search, knn_vote
from .knn_accuracy import KNNAccuracy

__all__ = [
    'KNNAccuracy', 'gather_samples', 'knn_scores', 'knn_search', 'knn_vote'
]  # yapf: disable
