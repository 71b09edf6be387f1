# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .agreement_loop import NeighbourAgreementValLoop
from .console_runner import ConsoleRunner
from .in_context_loop import InContextTestLoop
from .knn_loop import KNNTestLoop, KNNValLoop
from .low_shot_loop import LowShotTestLoop

__all__ = [
    'ConsoleRunner',
    'InContextTestLoop',
    'KNNTestLoop',
    'KNNValLoop',
    'LowShotTestLoop',
    'NeighbourAgreementValLoop',
]
