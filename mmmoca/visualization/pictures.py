# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images, masks and features as pictures: arrays (H, W, 3) in [0, 1]."""

import numpy as np
from matplotlib.colors import to_rgb
from sklearn.decomposition import PCA
from torch import Tensor

from mmmoca.datasets.masks import IGNORED

SHARP = 256  # pictures are not enlarged beyond this many pixels a side
MASKED = (0.89, 0.89, 0.89)
HATCH = (0.45, 0.62, 0.8)
# Okabe and Ito's colours, which colour-blind people can tell apart, and five
# more.
COLORS = (
    *('#0072b2', '#e69f00', '#009e73', '#d55e00'),
    *('#56b4e9', '#cc79a7', '#f0e442', '#6a3d9a'),
    *('#8c510a', '#e7298a', '#b3de69', '#1f1f7a'),
)


def to_picture(image: Tensor, bgr: bool = True) -> np.ndarray:
    """Convert a packed image into a picture.

    Args:
        image (Tensor): Result of ``PackInputs``, (C, H, W). Its first three
            channels are shown, or only the first if there are fewer. Values
            of uint8 are shown as they are, others from their minimum (black)
            to their maximum (white).
        bgr (bool): Whether the first channel is blue. Defaults to True.

    Returns:
        np.ndarray: RGB, (H, W, 3), float in [0, 1].
    """
    shown = image[: 3 if len(image) > 2 else 1].permute(1, 2, 0).numpy()
    low, high = 0, 255
    if shown.dtype != np.uint8:
        low, high = shown.min(), shown.max()
    picture = (shown - low) / max(high - low, 1e-12)
    if picture.shape[2] < 3:
        return picture.repeat(3, axis=2)
    return picture[..., ::-1] if bgr else picture


def masked_picture(
    picture: np.ndarray,
    visible: np.ndarray,
    predicted: np.ndarray,
    grid: tuple[int, int],
) -> np.ndarray:
    """Show visible patches, hatch predicted ones, and grey out the others.

    Args:
        picture (np.ndarray): (H, W, 3), float in [0, 1].
        visible (np.ndarray): Indices of the patches that the student sees,
            row by row, (n, ).
        predicted (np.ndarray): Indices of the masked patches to predict,
            (m, ).
        grid (tuple[int, int]): Rows and columns of patches, which divide the
            picture evenly.

    Returns:
        np.ndarray: (H, W, 3), equal to ``picture`` in visible patches.
    """
    height, width = picture.shape[:2]
    patch = height // grid[0], width // grid[1]

    def pixels(indices: np.ndarray) -> np.ndarray:
        chosen = np.zeros(grid[0] * grid[1], bool)
        chosen[indices] = True
        cells = chosen.reshape(grid)
        return cells.repeat(patch[0], axis=0).repeat(patch[1], axis=1)

    y, x = np.mgrid[:height, :width]
    # Each patch has four stripes, which continue in the next patch.
    stripes = (4 * (x / patch[1] + y / patch[0])) % 1 < 0.35
    result = np.full(picture.shape, MASKED)
    result[pixels(predicted) & stripes] = HATCH
    seen = pixels(visible)
    result[seen] = picture[seen]
    return result


def pca_colors(features: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Turn features of images into colours.

    The first three principal components of all ``features`` become red,
    green and blue. In each image the 2nd percentile of a component becomes 0
    and the 98th becomes 1. The components' signs depend on the features, so a
    colour may be inverted between two calls.

    Args:
        features (np.ndarray): At least three features, (N, ..., D).
        *others (np.ndarray): More features of the same images, which get
            their colours in the same way, (N, ..., D).

    Returns:
        list[np.ndarray]: Colours of ``features`` and of each of ``others``,
        (N, ..., 3), in [0, 1].
    """
    pca = PCA(3, random_state=0).fit(features.reshape(-1, features.shape[-1]))
    first, *more = (
        pca.transform(part.reshape(-1, part.shape[-1])).reshape(
            len(part), -1, 3
        )
        for part in (features, *others)
    )
    low, high = np.percentile(first, (2, 98), axis=1, keepdims=True)
    span = np.maximum(high - low, 1e-12)
    return [
        np.clip((components - low) / span, 0, 1).reshape(*part.shape[:-1], 3)
        for components, part in zip((first, *more), (features, *others))
    ]


def blended(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Lay the colours of labels over the greys of a picture, (H, W, 3).

    Label 0 darkens the picture; label 255 leaves it unchanged.
    """
    colors = np.array([to_rgb(color) for color in COLORS])
    shown = np.where(mask[..., None] > 0, colors[(mask - 1) % len(colors)], 0)
    grey = picture.mean(axis=2, keepdims=True)
    known = (mask < IGNORED)[..., None]
    return np.where(known, 0.4 * grey + 0.6 * shown, picture)


def enlarged(picture: np.ndarray) -> np.ndarray:
    """Repeat the pixels of a small picture, so that it is not smoothed."""
    scale = max(1, SHARP // max(picture.shape[:2]))
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)
