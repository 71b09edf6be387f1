# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip
from mmpretrain.registry import BATCH_AUGMENTS

from ..registry import child_of
from .assignment_head import AssignmentHead, AssignmentLosses
from .attentive_head import AttentiveHead
from .batched_linear_head import BatchedLinearHead
from .codebook import CodebookUpdate, OnlineCodebook
from .condenser import CondenserNeck
from .data_preprocessor import ViewsDataPreprocessor
from .depth_head import LinearDepthHead
from .detection import detector
from .feature_pyramid import ViTFeaturePyramid
from .linear_probe import LinearProbe
from .linear_segmentation import linear_segmentation_head
from .masking import Mask, MaskingPlan
from .moca import MOCA
from .objectives import bags_of_codes
from .position_encoding import sincos_positions_2d
from .prototypes import PrototypeGenerator
from .segmentation import seg_bands_preprocessor
from .targets import Targets
from .token_features import TokenFeatures
from .transformer import EncoderLayer
from .vit import DINOv3ViT, EncodedTokens, MOCAViT, RegisterViT
from .word_sampler import RandomTokenSampler

# For mixup and CutMix, in configs that inherit `mmmoca::...`.
child_of(BATCH_AUGMENTS, 'mmmoca.models')

__all__ = [
    'AssignmentHead',
    'AssignmentLosses',
    'AttentiveHead',
    'BatchedLinearHead',
    'CodebookUpdate',
    'CondenserNeck',
    'DINOv3ViT',
    'EncodedTokens',
    'EncoderLayer',
    'LinearDepthHead',
    'LinearProbe',
    'MOCA',
    'MOCAViT',
    'Mask',
    'MaskingPlan',
    'OnlineCodebook',
    'PrototypeGenerator',
    'Targets',
    'RandomTokenSampler',
    'RegisterViT',
    'TokenFeatures',
    'bags_of_codes',
    'linear_segmentation_head',
    'seg_bands_preprocessor',
    'sincos_positions_2d',
    'detector',
    'ViTFeaturePyramid',
    'ViewsDataPreprocessor',
]
