# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .assignment_head import AssignmentHead, AssignmentLosses, Prototypes
from .codebook import OnlineCodebook
from .condenser import CondenserNeck
from .masking import Mask, MaskingPlan
from .moca import MOCA
from .position_encoding import sincos_positions_2d
from .prototypes import PrototypeGenerator
from .vit import EncodedTokens, MOCAViT

__all__ = [
    'AssignmentHead',
    'AssignmentLosses',
    'CondenserNeck',
    'EncodedTokens',
    'MOCA',
    'MOCAViT',
    'Mask',
    'MaskingPlan',
    'OnlineCodebook',
    'PrototypeGenerator',
    'Prototypes',
    'sincos_positions_2d',
]
