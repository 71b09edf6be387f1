# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Evaluation protocols: pure functions and the metrics built on them."""

from .bank import ShardedBank, knn_search
from .features import raw_pixels
from .gather import gather_samples
from .metrics import (
    KNNAccuracy,
    LinearProbeAccuracy,
    LowShotAccuracy,
    NeighbourAgreement,
)
from .protocols.agreement import neighbour_agreement
from .protocols.in_context import PatchBank, label_shares
from .protocols.knn import knn_predictions, knn_vote
from .rank_me import rank_me

__all__ = [
    'KNNAccuracy',
    'LinearProbeAccuracy',
    'LowShotAccuracy',
    'NeighbourAgreement',
    'PatchBank',
    'ShardedBank',
    'gather_samples',
    'knn_predictions',
    'knn_search',
    'knn_vote',
    'label_shares',
    'neighbour_agreement',
    'rank_me',
    'raw_pixels',
]
