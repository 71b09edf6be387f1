# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image folders and the fast two-view augmentation."""

from .coco import coco
from .image_folder import ImageFolder
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
    'ImageFolder',
    'LoadImage',
    'RandomGrayscale',
    'RandomResizedCrop',
    'SeedTransforms',
    'SeededIndex',
    'SeededSampler',
    'coco',
    'mask_folder',
]
