# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images, names and folders that are broken or awkward."""

import io
import os
import shutil
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw


class Case(NamedTuple):
    """Something to add to a folder of good images, and what must come of it.

    Attributes:
        row (str): The row of the table.
        name (str): What it is.
        add (Callable): Adds it to a folder of images.
        fates (dict[str, str]): Of each file: 'read', 'named' (skipped, with
            a warning that names it), 'either' of these, or 'left out'.
        change (Callable, optional): Changes the folder after the first
            batch; the loader goes on for 5 epochs.
        refused (str): What the error must say if all is to stop.
    """

    row: str
    name: str
    add: Callable[[Path], None]
    fates: dict[str, str]
    change: Callable[[Path], None] | None = None
    refused: str = ''


def cases() -> Iterator[Case]:
    """All that is tried."""
    for row, kinds in (('damaged', damaged()), ('unusual', unusual())):
        for name, (file, content, fate) in kinds.items():
            yield Case(
                f'images: {row}',
                name,
                lambda folder, file=file, content=content: (
                    folder / file
                ).write_bytes(content),
                {file: fate},
            )
    yield from names()
    yield from files()
    yield from changes()


def picture(mode: str = 'RGB', size: tuple[int, int] = (80, 60)) -> Image:
    """An image with a shape in it."""
    image = Image.linear_gradient('L').resize(size).convert(mode)
    if min(size) > 9:
        ImageDraw.Draw(image).ellipse((9, 9, 40, 40), fill=0)
    return image


def encode(image: Image, kind: str, **options) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def damaged() -> dict[str, tuple[str, bytes, str]]:
    """Files that no decoder can read, or not wholly."""
    kinds = {
        'empty': ('x.jpg', b'', 'named'),
        'random': ('x.jpg', os.urandom(3000), 'named'),
        'a text': ('x.jpg', b'<html>404 Not Found</html>', 'named'),
        'zeros': ('x.png', bytes(3000), 'named'),
        'header of a bomb': ('x.png', _bomb(), 'named'),
    }
    for kind in ('JPEG', 'PNG', 'GIF', 'WEBP', 'TIFF', 'BMP'):
        whole = encode(picture(), kind)
        file = f'x.{kind.lower()}'
        for percent in (1, 10, 50, 90):
            content = whole[: len(whole) * percent // 100]
            kinds[f'{kind}, the first {percent} %'] = file, content, 'named'
        kinds[f'{kind}, the last 2 bytes gone'] = file, whole[:-2], 'either'
        half = len(whole) // 2
        zeroed = whole[:half] + bytes(64) + whole[half + 64 :]
        # Only PNG has checksums.
        fate = 'named' if kind == 'PNG' else 'either'
        kinds[f'{kind}, zeros in the middle'] = file, zeroed, fate
        kinds[f'{kind}, more behind'] = file, whole + bytes(99), 'read'
    return kinds


def _bomb() -> bytes:
    """A small PNG file that says that it is 20000 pixels wide and high."""
    whole = bytearray(encode(picture(), 'PNG'))
    whole[16:24] = struct.pack('>II', 20000, 20000)
    whole[29:33] = struct.pack('>I', zlib.crc32(whole[12:29]))
    return bytes(whole)


def unusual() -> dict[str, tuple[str, bytes, str]]:
    """Files that are whole, but not what most are."""
    rgb, grey = picture(), picture('L')
    alpha = picture('RGBA')
    alpha.putalpha(grey)
    deep = Image.fromarray(np.arange(4800, dtype=np.uint16).reshape(60, 80))
    frames = dict(save_all=True, append_images=[rgb.rotate(90)], duration=9)
    contents = {
        '1 x 1': ('x.png', encode(picture(size=(1, 1)), 'PNG')),
        '1 x 5000': ('x.jpg', encode(picture(size=(1, 5000)), 'JPEG')),
        '20000 x 10': ('x.jpg', encode(picture(size=(20000, 10)), 'JPEG')),
        '200 megapixels': ('x.jpg', _huge()),
        'a PNG named .jpg': ('x.jpg', encode(rgb, 'PNG')),
        'a JPEG named .png': ('x.png', encode(rgb, 'JPEG')),
        'CMYK': ('x.jpg', encode(picture('CMYK'), 'JPEG')),
        'grey JPEG': ('x.jpg', encode(grey, 'JPEG')),
        'progressive': ('x.jpg', encode(rgb, 'JPEG', progressive=True)),
        '16 bits': ('x.png', encode(deep, 'PNG')),
        '1 bit': ('x.png', encode(picture('1'), 'PNG')),
        'alpha': ('x.png', encode(alpha, 'PNG')),
        'grey and alpha': ('x.png', encode(alpha.convert('LA'), 'PNG')),
        'palette and alpha': ('x.png', encode(alpha.quantize(), 'PNG')),
        '1 bit TIFF': ('x.tif', encode(picture('1'), 'TIFF')),
        'LZW TIFF': (
            'x.tiff',
            encode(rgb, 'TIFF', compression='tiff_lzw'),
        ),
        'GIF': ('x.gif', encode(rgb, 'GIF')),
        'animated GIF': ('x.gif', encode(rgb, 'GIF', **frames)),
        'a GIF named .jpg': ('x.jpg', encode(rgb, 'GIF', **frames)),
        'animated PNG': ('x.png', encode(rgb, 'PNG', **frames)),
        'animated WebP': ('x.webp', encode(rgb, 'WEBP', **frames)),
        'WebP with alpha': ('x.webp', encode(alpha, 'WEBP')),
        'PGM': ('x.pgm', encode(grey, 'PPM')),
        'broken EXIF': ('x.jpg', encode(rgb, 'JPEG', exif=b'Exif\0\0MM\0x')),
        'broken profile': (
            'x.jpg',
            encode(rgb, 'JPEG', icc_profile=os.urandom(200)),
        ),
    }
    for number in (3, 6):
        exif = Image.Exif()
        exif[0x0112] = number
        contents[f'EXIF, turned {number}'] = (
            'x.jpg',
            encode(rgb, 'JPEG', exif=exif),
        )
    return {k: (*content, 'read') for k, content in contents.items()}


def _huge() -> bytes:
    """More pixels than Pillow opens."""
    return encode(Image.new('L', (15000, 13000), 99), 'JPEG')


def names() -> Iterator[Case]:
    """Names that are awkward to list, to log or to hand on."""
    good, bad = encode(picture(), 'JPEG'), b'no image'
    for what, name in {
        'no UTF-8': os.fsdecode(b'\xff\xfe.jpg'),
        'Unicode': 'Büro 图像 🙂.jpg',
        'of 255 bytes': 'x' * 251 + '.jpg',
        'a new line': 'a\nb.jpg',
        'quotes': 'a\'b"c`d.jpg',
        'marks of a shell': '$(touch x);&|*?.jpg',
        'marks of a format': '{0} %s %(x)d.jpg',
        'a colon and blanks': ' s3: a .jpg',
        'capitals': 'X.JPG',
        'two dots': 'x.tar.jpeg',
    }.items():
        for content, fate in ((good, 'read'), (bad, 'named')):
            yield Case(
                'images: names',
                f'{what}, {fate}',
                lambda folder, name=name, content=content: (
                    folder / name
                ).write_bytes(content),
                {name: fate},
            )

    def hide(folder: Path) -> None:
        (folder / '.ipynb_checkpoints').mkdir()
        for name in ('._x.jpg', '.x.jpg', '.ipynb_checkpoints/y.jpg'):
            (folder / name).write_bytes(good)
        (folder / 'Thumbs.db').write_bytes(bad)

    fates = dict.fromkeys(('._x.jpg', '.x.jpg', 'y.jpg'), 'left out')
    yield Case('images: names', 'hidden', hide, fates)


def files() -> Iterator[Case]:
    """Files that are none, links, and what may not be read."""

    def case(name: str, fates: dict[str, str], refused: str = ''):
        def wrap(add: Callable[[Path], None]) -> Callable[[Path], None]:
            made.append(Case('images: files', name, add, fates, None, refused))
            return add

        return wrap

    made = []

    @case('a folder named x.jpg', {'x.jpg': 'left out', 'y.jpg': 'read'})
    def _(folder: Path) -> None:
        (folder / 'x.jpg').mkdir()
        (folder / 'x.jpg' / 'y.jpg').write_bytes(encode(picture(), 'JPEG'))

    @case('a link to an image', {'x.jpg': 'read'})
    def _(folder: Path) -> None:
        (folder / 'x.jpg').symlink_to('0.jpg')

    @case('a link to a folder', {'y.jpg': 'read'})
    def _(folder: Path) -> None:
        other = folder.parents[1] / 'other'
        other.mkdir()
        (other / 'y.jpg').write_bytes(encode(picture(), 'JPEG'))
        (folder / 'x').symlink_to(other)

    @case('a link to nothing', {'x.jpg': 'named'})
    def _(folder: Path) -> None:
        (folder / 'x.jpg').symlink_to('nowhere.jpg')

    @case('a link to itself', {'x.jpg': 'named'})
    def _(folder: Path) -> None:
        (folder / 'x.jpg').symlink_to('x.jpg')

    @case('a link to the folder above', {})
    def _(folder: Path) -> None:
        (folder / 'up').symlink_to('..')
        (folder / 'here').symlink_to('.')

    @case('two folders linked to each other', {})
    def _(folder: Path) -> None:
        for name, other in (('a', 'b'), ('b', 'a')):
            (folder / name).mkdir()
            (folder / name / other).symlink_to(f'../{other}')

    @case('a pipe named x.jpg', {'x.jpg': 'left out'})
    def _(folder: Path) -> None:
        os.mkfifo(folder / 'x.jpg')

    @case('a socket named x.jpg', {'x.jpg': 'left out'})
    def _(folder: Path) -> None:
        here = os.open('.', os.O_RDONLY)
        os.chdir(folder)  # the path of a socket may have 108 bytes
        socket.socket(socket.AF_UNIX).bind('x.jpg')
        os.fchdir(here)

    @case('an image that may not be read', {'x.jpg': 'named'})
    def _(folder: Path) -> None:
        (folder / 'x.jpg').write_bytes(encode(picture(), 'JPEG'))
        (folder / 'x.jpg').chmod(0)

    @case('a folder that may not be read', {}, 'Permission denied.*closed')
    def _(folder: Path) -> None:
        (folder / 'closed').mkdir(mode=0)

    yield from made


def changes() -> Iterator[Case]:
    """Folders that change after they were listed."""

    def nothing(folder: Path) -> None:
        pass

    def vanish(folder: Path) -> None:
        (folder / '0.jpg').unlink()

    def vanish_all(folder: Path) -> None:
        shutil.rmtree(folder.parent)

    def replace(folder: Path) -> None:
        (folder / 'new').write_bytes(encode(picture('L'), 'PNG'))
        (folder / 'new').rename(folder / '0.jpg')

    def spoil(folder: Path) -> None:
        (folder / '0.jpg').write_bytes(b'no image')

    row = 'images: changes while training'
    yield Case(row, 'vanishes', nothing, {'0.jpg': 'named'}, vanish)
    yield Case(row, 'is replaced', nothing, {'0.jpg': 'read'}, replace)
    yield Case(row, 'is spoilt', nothing, {'0.jpg': 'named'}, spoil)
    refused = r'of the \d+ images so far could not be read.*max_unreadable='
    yield Case(row, 'all vanish', nothing, {}, vanish_all, refused)
