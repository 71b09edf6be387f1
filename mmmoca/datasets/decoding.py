# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What decoders of images lack: files of any size, and which way is up."""

import io
import struct

import numpy as np
from PIL import Image

TURN = 0x112  # of EXIF: how to hold the camera


def open_image(content: bytes) -> Image.Image:
    """Open an image without decoding it, of any size.

    ``Image.open`` has a limit that belongs to the whole process.

    Args:
        content (bytes): The bytes of a file.

    Returns:
        The image, of which ``size`` and ``getexif()`` are known.

    Raises:
        Image.UnidentifiedImageError: If Pillow knows no such format.
    """
    Image.init()
    stream = io.BytesIO(content)
    for opener, accept in map(Image.OPEN.get, Image.ID):
        try:
            known = accept is None or accept(content[:16])
            if known and not isinstance(known, str):  # a text is a warning
                stream.seek(0)
                return opener(stream, '')
        except (SyntaxError, IndexError, TypeError, struct.error):
            continue  # as Pillow does: another one may know it
    raise Image.UnidentifiedImageError('Pillow knows no such format')


def upright(img: np.ndarray, turn: int) -> np.ndarray:
    """Turn an image as EXIF says: 1 to 8, of which 5 to 8 swap the axes."""
    if turn in (5, 6, 7, 8):
        img = img.swapaxes(0, 1)
    down = -1 if turn in (3, 4, 7, 8) else 1
    right = -1 if turn in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(img[::down, ::right])
