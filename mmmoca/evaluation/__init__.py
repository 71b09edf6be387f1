# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Evaluation protocols: pure functions and the metrics built on them."""

from .features import raw_pixels
from .gather import gather_samples
from .in_context import PatchBank, label_shares
from .knn import knn_search, knn_top1, knn_vote
from .knn_bank import ShardedBank
from .metrics import KNNAccuracy, LinearProbeAccuracy, LowShotAccuracy
from .rank_me import rank_me

__all__ = [
    'KNNAccuracy',
    'LinearProbeAccuracy',
    'LowShotAccuracy',
    'PatchBank',
    'ShardedBank',
    'gather_samples',
    'knn_search',
    'knn_top1',
    'knn_vote',
    'label_shares',
    'rank_me',
    'raw_pixels',
]
