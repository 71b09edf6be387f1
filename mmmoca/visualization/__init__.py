# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pictures of what a model learnt and of how its training went."""

from .curves import draw_curves, read_scalars
from .features import dense_patches, extract_features, raw_pixels
from .overview import Neighbours, draw_overview, pick_images
from .pictures import masked_picture, pca_colors, to_picture

__all__ = [
    'Neighbours',
    'dense_patches',
    'draw_curves',
    'draw_overview',
    'extract_features',
    'masked_picture',
    'pca_colors',
    'pick_images',
    'raw_pixels',
    'read_scalars',
    'to_picture',
]
