# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image sets and the fast two-view augmentation."""

from .coco import coco
from .hf_images import HFImages
from .image_folder import ImageFolder
from .image_shards import ImageShards
from .loading import LoadImage
from .mask_folder import mask_folder
from .sampler import SeededIndex, SeededSampler, SeedTransforms
from .transforms import (
    ColorJitter,
    GaussianBlur,
    RandomGrayscale,
    RandomResizedCrop,
)

__all__ = [
    'ColorJitter',
    'GaussianBlur',
    'HFImages',
    'ImageFolder',
    'ImageShards',
    'LoadImage',
    'RandomGrayscale',
    'RandomResizedCrop',
    'SeedTransforms',
    'SeededIndex',
    'SeededSampler',
    'coco',
    'mask_folder',
]
