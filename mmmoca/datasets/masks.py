# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Masks in files: the index of the class of each pixel."""

from pathlib import Path

import numpy as np

from mmmoca.messages import printable

from .decoding import decode
from .headers import read_header

IGNORED = 255


def read_labels(
    path: Path, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """Read the mask of an image of a known size.

    Args:
        path (Path): An image of one channel, or of a palette, whose indices
            count.
        shape (tuple[int, ...], optional): H and W of the image as it is
            shown. None does not compare them.

    Returns:
        np.ndarray: Labels, (H, W), uint8. 255 is left out everywhere.

    Raises:
        OSError: If the file is missing or is no image.
        ValueError: If it has colours, another size, or a label that does not
            fit 8 bits.
    """
    try:
        content = path.read_bytes()
        # mmseg's LoadAnnotations reads them in the same way.
        stored = decode(content, read_header(content), backend='pillow')
    except (OSError, SyntaxError) as error:
        raise OSError(
            f'cannot read the mask {printable(path)}: {error}'
        ) from error
    if stored.ndim != 2 or shape not in (None, stored.shape):
        raise ValueError(
            f'{printable(path)} has the shape {stored.shape}, its image '
            f'{shape}: a mask has one channel, with the index of the class of '
            'each pixel, and the size of its image'
        )
    labels = stored.astype(np.uint8)
    if (wrong := stored[labels != stored]).size:
        raise ValueError(
            f'{printable(path)} has the label {wrong[0]}: the index of a '
            f'class is a whole number below {IGNORED}, which is left out'
        )
    return labels


def read_mask(path: Path, image: Path) -> np.ndarray:
    """Read the mask of an image in a file.

    Args:
        path (Path): See :func:`read_labels`.
        image (Path): The image, of which only the size is read.

    Returns:
        np.ndarray: Labels, (H, W), uint8. 255 is left out everywhere.

    Raises:
        OSError: If a file is missing or is no image.
        ValueError: As :func:`read_labels`, or if the size of the mask does not
            tell whether it is turned as EXIF turns the image.
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
    """Return the mask of an image, where the folder has masks.

    Args:
        image (Path): ``DIR/images/<place>`` or ``DIR/<place>``.

    Returns:
        Path: ``DIR/masks/<place>``, a PNG; None if there is none.
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
    """Return one more than the largest label of masks."""
    return 1 + max(int(m[m < IGNORED].max(initial=0)) for m in masks)
