# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image sets and the fast two-view augmentation."""

import mmmoca.import_mmpretrain  # noqa: F401

from .band_loading import LoadBands
from .band_transforms import BandJitter, ResizeBands
from .coco import coco
from .held_out import evenly_spaced, held_out
from .hf_images import HFImages
from .image_folder import ImageFolder
from .image_shards import ImageShards
from .loading import LoadImage
from .seeding import (
    ClassBalancedDataset,
    ResumableBatchSampler,
    SeededSampler,
    SeedTransforms,
)
from .transforms import (
    ColorJitter,
    GaussianBlur,
    RandomGrayscale,
    RandomResizedCrop,
    ResizeEdge,
)

__all__ = [
    'BandJitter',
    'ClassBalancedDataset',
    'ColorJitter',
    'GaussianBlur',
    'HFImages',
    'ImageFolder',
    'ImageShards',
    'LoadBands',
    'LoadImage',
    'RandomGrayscale',
    'RandomResizedCrop',
    'ResizeBands',
    'ResizeEdge',
    'ResumableBatchSampler',
    'SeedTransforms',
    'SeededSampler',
    'coco',
    'evenly_spaced',
    'held_out',
]
