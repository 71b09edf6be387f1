# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pictures of a trained model and curves of its training."""

from .curves import draw_curves, read_scalars
from .feature_maps import dense_patches
from .neighbours import Neighbours, pick_images
from .overview import draw_overview
from .pictures import masked_picture, pca_colors, to_picture

__all__ = [
    'Neighbours',
    'dense_patches',
    'draw_curves',
    'draw_overview',
    'masked_picture',
    'pca_colors',
    'pick_images',
    'read_scalars',
    'to_picture',
]
