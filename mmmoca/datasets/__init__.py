# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image folders and the fast two-view augmentation."""

from .band_loading import LoadBands
from .band_transforms import BandJitter, ResizeEdge
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
    'BandJitter',
    'ColorJitter',
    'GaussianBlur',
    'ImageFolder',
    'LoadBands',
    'LoadImage',
    'RandomGrayscale',
    'RandomResizedCrop',
    'ResizeEdge',
    'SeedTransforms',
    'SeededIndex',
    'SeededSampler',
    'coco',
    'mask_folder',
]
