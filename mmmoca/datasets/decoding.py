# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Decodes images for the whole project, from files and in memory."""

import io
import math

import cv2
import numpy as np
from PIL import Image

from mmmoca.requirements import import_extra

from .headers import Header, Source, npy_layout, open_image

PIXELS = 2**30  # OpenCV's own limit for an image
# OpenCV's flip code for each EXIF orientation; 5 to 8 are transposed first.
_FLIPS = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}


def decode(
    source: Source,
    header: Header,
    form: str = 'stored',
    backend: str = 'cv2',
    turned: bool = True,
    shrink: int = 1,
    deep: bool = True,
    background: tuple[int, int, int] | None = None,
    palette: str = '',
) -> np.ndarray | None:
    """Decode an image.

    Args:
        source (bytes | Image.Image | np.ndarray): The bytes of a file, or an
            image in memory. An array has its channels last, in RGB order.
        header (Header): The header that :func:`read_header` returned for it.
        form (str): 'color' for BGR, 'grayscale', or 'stored' for the values
            and the channel order of the file. With 'stored', a palette image
            gives its indices.
        backend (str): 'cv2' or 'pillow': the decoder to use for files that
            both can decode.
        turned (bool): Turn the image as EXIF says. It has no effect with
            'stored'.
        shrink (int): 1, 2, 4 or 8. A JPEG file is decoded at 1/shrink of its
            size.
        deep (bool): Keep values of more than 8 bits. False keeps their upper
            8 bits.
        background (tuple[int, int, int], optional): RGB colour behind
            transparent pixels. By default, their stored colours are used.
        palette (str): 'RGB' or 'RGBA' replaces the indices of a palette image
            with colours, even if ``form`` is 'stored'.

    Returns:
        np.ndarray: (H, W, C) or (H, W). None if OpenCV cannot decode the file,
        or if it is an NPY file and ``form`` is not 'stored'.

    Raises:
        Exception: Each decoder raises its own errors.
        ValueError: If the image has more than 2**30 pixels, or if its colours
            are CIELAB.
    """
    stored = form == 'stored'
    if isinstance(source, np.ndarray):
        if stored:
            return source
        source = _pillow_image(source)
    elif isinstance(source, bytes):
        if header.format == 'NPY':
            return _npy_values(source) if stored else None
        check_size(*header.size, header.channels)
        pillow = backend == 'pillow' or _needs_pillow(header, form, background)
        if stored and header.format == 'TIFF' and not pillow:
            return _tiff_values(source, header)
        if pillow:
            source = open_image(source)
    img = None
    if isinstance(source, bytes):
        img = _opencv_values(source, form, shrink, deep)
        # OpenCV cannot decode TIFF files with certain tile sizes.
        if img is None and header.format == 'TIFF':
            source = open_image(source)
    if not isinstance(source, bytes):
        source = _coloured(source, header, palette)
        img = _pillow_values(source, header, form, backend, background)
    turned = turned and not stored
    return img if img is None else upright(img, _left_to_turn(header, turned))


def _pillow_image(values: np.ndarray) -> Image.Image:
    grey = values.shape[2:] == (1,)
    return Image.fromarray(values[..., 0] if grey else values)


def _coloured(image: Image.Image, header: Header, palette: str) -> Image.Image:
    shown = palette and header.mode == 'P'
    return image.convert(palette) if shown else image


def upright(img: np.ndarray, turn: int) -> np.ndarray:
    """Turn an image by its EXIF orientation, 1 to 8; 5 to 8 swap the axes."""
    if turn in (5, 6, 7, 8):
        img = cv2.transpose(img)
    return cv2.flip(img, _FLIPS[turn]) if turn in _FLIPS else img


def _left_to_turn(header: Header, turned: bool) -> int:
    """Return the EXIF orientation that is left to apply after decoding."""
    turn = header.orientation
    if header.format == 'TIFF':  # OpenCV and Pillow have turned it
        return 1 if turned else {6: 8, 8: 6}.get(turn, turn)
    return turn if turned else 1


def check_size(*shape: int) -> None:
    """Raise if an image has more than 2**30 pixels or 2**32 values.

    A file of a few bytes can claim a size that exceeds the memory.

    Raises:
        ValueError: If the image is too large. The message states its shape.
    """
    values = math.prod(shape)
    pixels = values // max(1, min(shape)) if len(shape) == 3 else values
    if max(pixels, values // 4) > PIXELS:
        raise ValueError(
            f'its shape is {shape}: more than {PIXELS} pixels or {4 * PIXELS} '
            'values'
        )


def _needs_pillow(header: Header, form: str, background: tuple | None) -> bool:
    """Return whether Pillow must decode an image, such as a HEIC file."""
    clear, tiff = header.transparent, header.format == 'TIFF'
    if form == 'stored':
        clear = clear and header.bits <= 8 and not tiff
        return header.mode == 'P' or clear
    # OpenCV multiplies the colours of a TIFF by alpha.
    shown = background is not None or (tiff and header.bits <= 8)
    other = header.format == 'HEIF' or header.mode == 'LAB'
    return (clear and shown) or other or header.scaled


def _opencv_values(
    content: bytes, form: str, shrink: int, deep: bool
) -> np.ndarray | None:
    flag = cv2.IMREAD_IGNORE_ORIENTATION
    if form == 'stored':
        flag = cv2.IMREAD_UNCHANGED
    elif shrink > 1:
        flag |= getattr(cv2, f'IMREAD_REDUCED_COLOR_{shrink}')
    else:
        grey = form == 'grayscale'
        flag |= cv2.IMREAD_GRAYSCALE if grey else cv2.IMREAD_COLOR
    if deep:
        flag |= cv2.IMREAD_ANYDEPTH  # no effect on files of 8 bits
    if content.startswith(b'P7'):  # PAM, whose colours OpenCV swaps
        return None
    img = cv2.imdecode(np.frombuffer(content, np.uint8), flag)
    if form == 'stored' and img is not None and img.ndim == 3:  # BGR or BGRA
        img = img[..., [2, 1, 0, 3][: img.shape[2]]]
    return img


def _pillow_values(
    image: Image.Image,
    header: Header,
    form: str,
    backend: str,
    background: tuple[int, int, int] | None,
) -> np.ndarray:
    if form == 'stored':
        return np.asarray(image)
    if image.mode == 'LAB':
        raise ValueError('its colours are CIELAB: convert it to RGB')
    if image.mode.startswith('I'):  # 16 bits, which PIL clips at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ('La', 'RGBa'):  # PIL converts them only to LA or RGBA
        image = image.convert(f'{image.mode[:-1]}A')
    if background is not None and header.transparent:
        canvas = Image.new('RGBA', image.size, (*background, 255))
        image = Image.alpha_composite(canvas, image.convert('RGBA'))
    image = image.convert('RGB')
    if form == 'color':
        return np.ascontiguousarray(np.asarray(image)[..., ::-1])
    if backend == 'pillow':
        return np.array(image.convert('L'))
    return cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2GRAY)


def stored_shape(content: bytes, header: Header) -> tuple[int, ...]:
    """Return the shape of a TIFF's first series, or of an NPY file's array."""
    if header.format == 'NPY':
        return npy_layout(content)[0]
    tifffile = import_extra('tifffile', 'TIFF')
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        return file.series[0].shape


def _npy_values(content: bytes) -> np.ndarray:
    shape, dtype, columns, begin = npy_layout(content)
    # np.load would allocate whatever size the header claims.
    values = np.frombuffer(content, dtype, math.prod(shape), begin)
    return values.reshape(shape, order='F' if columns else 'C')


def _tiff_values(content: bytes, header: Header) -> np.ndarray:
    tifffile = import_extra('tifffile', 'TIFF')
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        check_size(*file.series[0].shape)
        check_size(*file.series[0].keyframe.chunks)
        img = file.asarray()
    if not header.inverted:
        return img
    return ~img if img.dtype.kind in 'biu' else -img
