# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads the header of an image: format, size, depth, but no pixels."""

import io
import struct
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ExifTags import Base as Tag

# The bytes of a file, or an image of PIL or NumPy.
Source = bytes | Image.Image | np.ndarray

NPY = b'\x93NUMPY'
TIFF = (b'II*\0', b'MM\0*', b'II+\0', b'MM\0+')  # the last two: BigTIFF
HEIF = (b'heic', b'heix', b'heim', b'heis', b'hevc', b'hevx', b'mif1')
TURNED = 'turned by EXIF'
_GDAL_NODATA = 42113
# The TIFF tags that are read; other tags may be as long as the file.
_TAGS = {
    Tag.NewSubfileType,
    Tag.ImageWidth,
    Tag.ImageLength,
    Tag.BitsPerSample,
    Tag.PhotometricInterpretation,
    Tag.StripOffsets,
    Tag.Orientation,
    Tag.SamplesPerPixel,
    Tag.StripByteCounts,
    Tag.TileOffsets,
    Tag.TileByteCounts,
    Tag.ExtraSamples,
    Tag.SampleFormat,
    _GDAL_NODATA,
}
# The types of a TIFF's values, by its SampleFormat tag.
_KINDS = {2: 'int', 3: 'float', 5: 'complex', 6: 'complex'}
# Letters of the struct module for the types of a TIFF's tags.
_TYPES = {1: 'B', 2: 's', 3: 'H', 4: 'L', 13: 'L', 16: 'Q'}
# For each photometric interpretation of a TIFF: Pillow's mode, and the number
# of colour channels, where it is not 1.
_MODES = {0: 'L', 1: 'L', 2: 'RGB', 3: 'P', 5: 'CMYK', 6: 'YCbCr', 8: 'LAB'}
_COLOURS = {2: 3, 5: 4, 6: 3, 8: 3}
# The last bytes of a complete file, by format.
_ENDS = {'GIF': b'\0;', 'JPEG2000': b'\xff\xd9'}


class Header(NamedTuple):
    """What a file states about its image.

    Attributes:
        format (str): Pillow's name of the format, or 'NPY'; '' for an array in
            memory.
        mode (str): Pillow's mode; a type such as 'uint16' where Pillow has no
            mode.
        size (tuple[int, int]): H and W as stored.
        channels (int): Number of channels as stored: 1 for a palette.
        bits (int): Bits per channel.
        orientation (int): EXIF orientation, 1 to 8; 1 if there is none.
        transparent (bool): Whether pixels can be transparent.
        extra (int): Channels that are neither colours nor transparency.
        inverted (bool): Whether 0 is white, which a TIFF can state.
        nodata (float, optional): Value of pixels without a measurement, from
            GDAL's tag.
        frames (int): Number of pages, frames or series. Only the first is
            read.
        whole (bool): Whether the file ends as its format requires. False means
            that it was cut short.
        odd_exif (bool): Whether the file has EXIF data that cannot be read.
        scaled (bool): Whether Pillow has to scale the values to 8 or 16 bits,
            as for a PGM or PPM with a maximum such as 1023, or for a BMP of 15
            or 16 bits.
    """

    format: str
    mode: str
    size: tuple[int, int]
    channels: int
    bits: int
    orientation: int = 1
    transparent: bool = False
    extra: int = 0
    inverted: bool = False
    nodata: float | None = None
    frames: int = 1
    whole: bool = True
    odd_exif: bool = False
    scaled: bool = False

    @property
    def shown(self) -> tuple[int, int]:
        """tuple[int, int]: H and W as shown, turned as EXIF says."""
        return self.size[::-1] if self.orientation > 4 else self.size

    @property
    def hides_turn(self) -> bool:
        """bool: Whether EXIF turns the image without changing H and W."""
        return self.orientation > 1 and self.shown == self.size

    @property
    def oddities(self) -> tuple[str, ...]:
        """tuple[str, ...]: Phrases for what stands out, such as TURNED."""
        found = {
            'with transparency': self.transparent,
            TURNED: self.orientation > 1,
            'with EXIF that cannot be read': self.odd_exif,
            'of several pages or frames': self.frames > 1,
            'cut short': not self.whole,
        }
        return tuple(phrase for phrase, odd in found.items() if odd)


def read_header(source: Source) -> Header:
    """Read the header of an image, without decoding a file.

    Args:
        source (bytes | Image.Image | np.ndarray): The bytes of a file, or an
            image in memory. A PIL image is loaded.

    Returns:
        Header: The header.

    Raises:
        OSError: If it is not an image of a known kind, or is a closed PIL
            image.
    """
    try:
        if isinstance(source, np.ndarray):
            return _header_of_shape('', source.shape, source.dtype)
        if isinstance(source, Image.Image):
            # Loading a TIFF turns it and removes its orientation tag.
            turn = getattr(source, 'tag_v2', {}).get(Tag.Orientation, 1)
            source.load()
            return _header_of_pillow(source, turn=_valid(turn))
        if source.startswith(NPY):
            return _header_of_shape('NPY', *npy_layout(source)[:2])
        if source.startswith(TIFF):
            return _header_of_tiff(source)
        return _header_of_pillow(open_image(source), source)
    except UnidentifiedImageError:
        raise
    except ImportError as error:  # pillow-heif is missing
        raise UnidentifiedImageError(f'{error}') from error
    except Exception as error:  # each format has errors of its own
        what = 'it is not an image, or it is cut short'
        if isinstance(source, Image.Image):
            what = 'PIL has closed it, or cannot load it'
        raise UnidentifiedImageError(f'{what}: {error!r}') from error


def npy_layout(content: bytes) -> tuple[tuple[int, ...], np.dtype, bool, int]:
    """Return the shape, dtype, Fortran order and offset of an NPY array."""
    stream = io.BytesIO(content)
    old = np.lib.format.read_magic(stream) == (1, 0)
    read = np.lib.format.read_array_header_1_0
    read = read if old else np.lib.format.read_array_header_2_0
    shape, columns, dtype = read(stream)
    return shape, dtype, columns, stream.tell()


def open_image(content: bytes) -> Image.Image:
    """Open an image of any size without decoding it.

    ``Image.open`` refuses large images, and its limit can be raised only for
    the whole process.

    Args:
        content (bytes): The bytes of a file.

    Returns:
        The image, with known ``size`` and ``info``.

    Raises:
        Image.UnidentifiedImageError: If Pillow does not know the format, or
            there are no bytes.
        ImportError: For HEIC, if pillow-heif is missing.
    """
    Image.init()
    stream = io.BytesIO(content)
    kinds = content[8:64] if content[4:8] == b'ftyp' else b''
    if kinds[:4] in HEIF and b'avif' not in kinds:
        # Registering pillow-heif would change Pillow for the whole process.
        try:
            heif = import_module('pillow_heif')
        except ImportError as error:
            raise ImportError(
                'to read HEIC, run `pip install pillow-heif`'
            ) from error
        return heif.HeifImageFile(stream)
    for opener, accept in map(Image.OPEN.get, Image.ID):
        try:
            known = accept is None or accept(content[:16])
            if known and not isinstance(known, str):  # a str is a warning
                stream.seek(0)
                return opener(stream, '')
        except (SyntaxError, IndexError, TypeError, struct.error):
            continue  # as Pillow does: another opener may know it
    raise UnidentifiedImageError(
        'Pillow knows no such format' if content else 'the file is empty'
    )


def _header_of_shape(
    kind: str, shape: tuple[int, ...], dtype: np.dtype
) -> Header:
    """Describe an array.

    The shorter one of its first and last axes contains the channels.
    """
    first = len(shape) > 2 and shape[0] < shape[-1]
    height, width = (*shape[first:], 0, 0)[:2]
    channels = min(shape[0], shape[-1]) if len(shape) > 2 else 1
    # Pillow takes the fourth channel of a uint8 array for transparency.
    clear = not kind and shape[2:] == (4,) and dtype == np.uint8
    bits = 1 if dtype.kind == 'b' else 8 * dtype.itemsize
    size = int(height), int(width)
    return Header(kind, str(dtype), size, channels, bits, transparent=clear)


def _header_of_pillow(
    image: Image.Image, content: bytes = b'', turn: int = 1
) -> Header:
    kind, exif = str(image.format or ''), image.info.get('exif', b'')
    # For an image in memory, the file is unknown: it counts as whole.
    whole = not content or _is_whole(kind, content, image)
    if kind == 'PNG' and content:
        chunks = _png_chunks(content)
        whole = b'IEND' in chunks
        if not exif and b'eXIf' in chunks:  # EXIF after the pixels
            exif = b'Exif\0\0' + chunks[b'eXIf']
    odd = False
    if exif and isinstance(exif, bytes):
        turn, odd = _turn_of(exif)
    mode = image.mode
    tile = f'{getattr(image, "tile", mode)}'
    # Pillow scales PGM and PPM (decoders 'ppm', 'ppm_plain') and 16-bit BMP
    # (raw modes 'BGR;15', 'BGR;16').
    scaled = "'ppm" in tile or 'BGR;1' in tile
    deep = 16 if ';16' in f'{tile} {mode}' and not scaled else 8
    if mode[0] in 'IF' and mode[1:] == '':
        deep = 32
    return Header(
        kind,
        mode,
        image.size[::-1],
        channels=len(image.getbands()),
        bits=1 if mode == '1' else deep,
        orientation=turn,
        transparent=mode[-1:] in 'Aa' or 'transparency' in image.info,
        frames=_count_frames(image),
        whole=whole,
        odd_exif=odd,
        scaled=scaled,
    )


def _header_of_tiff(content: bytes) -> Header:
    pages: list[dict[int, tuple]] = []
    whole = True
    try:
        pages.extend(_directories(content))
    except (LookupError, struct.error):  # use the pages before the damage
        whole = False
    first, *others = pages
    bits = _first(first, Tag.BitsPerSample)
    channels = _first(first, Tag.SamplesPerPixel)
    photometric = _first(first, Tag.PhotometricInterpretation)
    more = channels - _COLOURS.get(photometric, 1)
    # An unlabelled extra channel of RGB is transparency, as in Pillow.
    unlabelled = (2,) if photometric == 2 else (0,)
    kinds = first.get(Tag.ExtraSamples, unlabelled)
    clear = more > 0 and (1 in kinds or 2 in kinds)
    extra = max(0, more - clear)
    # Pillow is not used here, because it would log what it cannot read.
    mode = _MODES.get(photometric) if bits <= 8 and not extra else None
    if mode is None:
        kind = _KINDS.get(_first(first, Tag.SampleFormat), 'uint')
        mode = f'{kind}{bits}'
    elif bits == 1 and mode == 'L':
        mode = '1'
    return Header(
        'TIFF',
        f'{mode}A' if clear and mode in ('L', 'RGB') else mode,
        (first[Tag.ImageLength][0], first[Tag.ImageWidth][0]),
        channels,
        bits,
        orientation=_valid(_first(first, Tag.Orientation)),
        transparent=clear,
        extra=extra,
        inverted=photometric == 0,
        nodata=_number(_first(first, _GDAL_NODATA, b'')),
        # Pages that are previews or transparency masks do not count.
        frames=1
        + sum(not _first(page, Tag.NewSubfileType, 0) & 5 for page in others),
        whole=whole and max(map(_end_of_pixels, pages)) <= len(content),
    )


def _first(page: dict[int, tuple], tag: int, default: Any = 1) -> Any:
    """Return the first value of a tag."""
    return page.get(tag, (default,))[0]


def _end_of_pixels(page: dict[int, tuple]) -> int:
    """Return the offset at which the last strip or tile of a page ends."""
    begins, sizes = (
        page.get(strips, page.get(tiles, ()))
        for strips, tiles in (
            (Tag.StripOffsets, Tag.TileOffsets),
            (Tag.StripByteCounts, Tag.TileByteCounts),
        )
    )
    return max((a + b for a, b in zip(begins, sizes)), default=0)


def _valid(turn: int) -> int:
    return turn if turn in range(1, 9) else 1


def _number(text: bytes) -> float | None:
    try:
        return float(text.split(b'\0')[0])
    except ValueError:
        return None


def _directories(body: bytes) -> Iterator[dict[int, tuple]]:
    """Yield the tags of each page of a TIFF, or of EXIF in TIFF layout.

    Raises:
        KeyError, struct.error: If it is not a TIFF, or damaged.
    """
    order = {b'II': '<', b'MM': '>'}[body[:2]]

    def read(form: str, place: int) -> tuple:
        return struct.unpack_from(order + form, body, place)

    big = {42: False, 43: True}[read('H', 2)[0]]
    word, number, width = ('Q', 'Q', 20) if big else ('L', 'H', 12)
    (place,) = read(word, 8 if big else 4)
    seen = set()
    while place and place not in seen:
        seen.add(place)
        tags = {}
        (count,) = read(number, place)
        place += struct.calcsize(f'={number}')
        for entry in range(place, place + count * width, width):
            tag, kind, many = read(f'HH{word}', entry)
            if kind in _TYPES and tag in _TAGS:
                form = f'{many}{_TYPES[kind]}'
                at = entry + 4 + struct.calcsize(f'={word}')
                if struct.calcsize(f'={form}') > struct.calcsize(f'={word}'):
                    (at,) = read(word, at)
                # A tag can point beyond the end, for example in EXIF whose
                # thumbnail was removed.
                with suppress(struct.error):
                    tags[tag] = read(form, at)
        yield tags
        (place,) = read(word, place + count * width)


def _turn_of(exif: bytes) -> tuple[int, bool]:
    """Return the orientation in EXIF, and whether EXIF cannot be read."""
    try:
        tags = next(_directories(exif.removeprefix(b'Exif\0\0')))
        turn = _first(tags, Tag.Orientation)
    except (LookupError, struct.error, StopIteration):
        return 1, True
    return _valid(turn), turn not in range(9)


def _count_frames(image: Image.Image) -> int:
    try:
        return getattr(image, 'n_frames', 1)
    except Exception:  # its file is closed or cut short
        return 1


def _png_chunks(content: bytes) -> dict[bytes, bytes]:
    """Return the chunks of a PNG by name, except those of the pixels."""
    found, place = {}, 8
    while place + 12 <= len(content):
        begin = place + 8
        size, kind = struct.unpack_from('>L4s', content, place)
        place = begin + size + 4
        if not kind.isalpha() or place > len(content):
            break
        if kind != b'IDAT':
            found[kind] = content[begin : begin + size]
    return found


def _is_whole(kind: str, content: bytes, image: Image.Image) -> bool:
    """Return whether a file ends as its format requires; True if unknown."""
    if kind in ('JPEG', 'MPO'):
        # The end marker follows the start of the pixels. Cameras may append
        # more data after it.
        return content.rfind(b'\xff\xd9') > image.fp.tell()
    if kind in _ENDS:  # some systems append zeros
        return content.rstrip(b'\0').endswith(_ENDS[kind])
    if kind == 'WEBP':
        said = int.from_bytes(content[4:8], 'little') + 8
        return len(content) >= said and any(content[said - 64 : said])
    return kind != 'BMP' or len(content) >= int.from_bytes(
        content[2:6], 'little'
    )
