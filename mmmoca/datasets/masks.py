# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads masks: files with the class index of each pixel."""

from pathlib import Path

import numpy as np

from mmmoca.messages import printable

from .decoding import decode
from .headers import read_header

IGNORED = 255


def read_labels(
    path: Path, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """Read a mask, and compare its size with that of its image.

    Args:
        path (Path): A file with one channel or a palette. The indices of a
            palette are the labels.
        shape (tuple[int, ...], optional): H and W of the image as it is
            shown. None skips the comparison.

    Returns:
        np.ndarray: Labels, (H, W), uint8. Training and evaluation ignore 255.

    Raises:
        OSError: If the file is missing or is not an image.
        ValueError: If it has colour channels, a size other than ``shape``, or
            a label that does not fit into 8 bits.
    """
    try:
        content = path.read_bytes()
        # mmseg's LoadAnnotations also reads masks with Pillow.
        stored = decode(content, read_header(content), backend='pillow')
    except (OSError, SyntaxError) as error:
        raise OSError(
            f'cannot read the mask {printable(path)}: {error}'
        ) from error
    if stored.ndim != 2 or shape not in (None, stored.shape):
        raise ValueError(
            f'{printable(path)} has the shape {stored.shape}'
            f'{f", and its image {shape}" if shape else ""}. A mask must have '
            'the size of its image and only one channel, which contains the '
            'class index of each pixel'
        )
    labels = stored.astype(np.uint8)
    if (wrong := stored[labels != stored]).size:
        raise ValueError(
            f'{printable(path)} has the label {wrong[0]}: a class index '
            f'must be a whole number below {IGNORED}, which marks pixels to '
            'leave out'
        )
    return labels


def read_mask(path: Path, image: Path) -> np.ndarray:
    """Read a mask, and compare its size with that of its image file.

    Args:
        path (Path): See :func:`read_labels`.
        image (Path): The image. Only its header is decoded.

    Returns:
        np.ndarray: Labels, (H, W), uint8. Training and evaluation ignore 255.

    Raises:
        OSError: If a file is missing or is not an image.
        ValueError: As in :func:`read_labels`; also if EXIF turns the image
            without changing its size, so that the size of the mask does not
            tell whether the mask is turned.
    """
    try:
        photo = read_header(image.read_bytes())
    except OSError as error:
        raise OSError(
            f'cannot read {printable(image)}, the image of a mask: {error}'
        ) from error
    labels = read_labels(path, photo.shown)
    if photo.hides_turn:
        raise ValueError(
            f'EXIF turns {printable(image)}, and the size of '
            f'{printable(path)} does not tell whether the mask is turned, '
            'too: save the image as it is shown'
        )
    return labels


def mask_beside(image: Path) -> Path | None:
    """Look for the mask of an image in folders named ``masks``.

    Args:
        image (Path): ``DIR/images/<place>`` or ``DIR/<place>``.

    Returns:
        Path: ``DIR/masks/<place>`` with the extension ``.png``; None if there
        is no such file.
    """
    image = image.absolute()
    for root in image.parents:
        place = image.relative_to(root).with_suffix('.png')
        if place.parts[0] == 'images':
            place = place.relative_to('images')
        if (path := root / 'masks' / place).is_file():
            return path
    return None


def count_classes(masks: list[np.ndarray]) -> int:
    """Return the largest label in masks plus one; 255 does not count."""
    return 1 + max(int(m[m < IGNORED].max(initial=0)) for m in masks)
