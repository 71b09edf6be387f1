# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The Python interface: ``mmmoca.load``, ``look`` and ``pretrain``."""

import mmmoca.import_mmpretrain  # noqa: F401

from .encoder import Encoder
from .features import Embeddings
from .loading import load
from .looking import look
from .pretraining import pretrain

__all__ = ['Embeddings', 'Encoder', 'load', 'look', 'pretrain']
