# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Masks in files: the index of the class of each pixel."""

from pathlib import Path

import numpy as np

from mmmoca.messages import printable

from .decoding import TURN, open_image

IGNORED = 255


def read_mask(path: Path, image: Path) -> np.ndarray:
    """Read the mask of an image.

    Args:
        path (Path): A PNG of one channel, or of a palette, whose indices
            count.
        image (Path): The image, of which only the size is read.

    Returns:
        np.ndarray: Labels, (H, W), uint8. 255 is left out everywhere.

    Raises:
        OSError: If a file is missing or is no image.
        ValueError: If it has colours or other bits, another size than the
            image as it is shown, or one that does not tell whether it is
            turned as EXIF turns the image.
    """
    try:
        mask = open_image(path.read_bytes())
        labels = np.asarray(mask)
        photo = open_image(image.read_bytes())
        turn = photo.getexif().get(TURN, 1)
    except OSError as error:
        raise OSError(
            f'{printable(path)} or its image {printable(image)} cannot be '
            f'read: {error}'
        ) from error
    if mask.mode not in ('1', 'L', 'P'):
        raise ValueError(
            f'{printable(path)} is of the mode {mask.mode} of PIL: a mask has '
            'one channel of 8 bits, the index of the class'
        )
    size = photo.size[::-1] if turn in (5, 6, 7, 8) else photo.size
    if mask.size != size:
        raise ValueError(
            f'{printable(path)} has {mask.size} pixels, its image {size}'
        )
    if turn in range(2, 9) and photo.size == size:
        raise ValueError(
            f'EXIF turns {printable(image)}, and the size of '
            f'{printable(path)} does not tell whether the mask is turned, '
            'too: save the image as it is shown'
        )
    return labels.astype(np.uint8)


def mask_beside(image: Path) -> Path | None:
    """The mask of an image, where the folder has masks.

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
