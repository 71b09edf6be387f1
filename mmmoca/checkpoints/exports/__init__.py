# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .encoder import Encoder, encoder_of
from .exporting import FORMATS, check_target, export_encoder

__all__ = [
    'FORMATS',
    'Encoder',
    'check_target',
    'encoder_of',
    'export_encoder',
]
