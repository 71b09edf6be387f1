# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The Python interface: ``mmmoca.load`` and ``mmmoca.pretrain``."""

from .encoder import Embeddings, Encoder
from .loading import load
from .pretraining import pretrain

__all__ = ['Embeddings', 'Encoder', 'load', 'pretrain']
