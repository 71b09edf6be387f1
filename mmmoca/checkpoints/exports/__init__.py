# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .encoder import Encoder, encoder_of
from .exporting import FORMATS, check_target, export_encoder
from .hub import check_hub, push_to_hub

__all__ = [
    'FORMATS',
    'Encoder',
    'check_hub',
    'check_target',
    'encoder_of',
    'export_encoder',
    'push_to_hub',
]
