# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What takes a line from Python: ``mmmoca.load`` and ``mmmoca.pretrain``."""

from .encoder import Embeddings, Encoder, load
from .pretraining import pretrain

__all__ = ['Embeddings', 'Encoder', 'load', 'pretrain']
