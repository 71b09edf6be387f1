# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images that are broken, unusual or oddly named.

Each trial adds one to a folder of 16 good images and takes them all through
the quick start's data set, pipeline and loader, with a worker. What can be
read must arrive, what cannot must be named in the log, nothing may hang.
"""

import io
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from PIL import Image

from mmmoca.messages import printable

from ...images import DEMO_CONFIG, write_images
from .trials import Trial

Case = tuple[str, str, bytes | Callable[[Path], object], str]


def trials(folder: Path, count: int) -> Iterator[Trial]:
    """Every case, or an evenly spread ``count`` times four of them."""
    write_images(folder / 'good', train=8, val=1, classes=2)
    tried = list(cases())
    tried = tried[:: max(1, len(tried) // (4 * count))]
    for number, (what, name, content, fate) in enumerate(tried):
        root = folder / f'trial_{number}'
        shutil.copytree(folder / 'good', root)
        path = root / 'train' / 'class_0' / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)
        yield Trial('images', f'{what}, {fate}', judge(root, name, fate))


def judge(root: Path, name: str, fate: str) -> str:
    """Load all images of the folder; what is wrong, '' if nothing."""
    log = root / 'log'
    MMLogger.get_instance(root.name, log_file=str(log), log_level='WARNING')
    cfg = Config.fromfile(DEMO_CONFIG).train_dataloader
    cfg.dataset.data_root = str(root)
    # A worker that hangs is an error after a minute.
    cfg.update(batch_size=4, persistent_workers=False, timeout=60)
    cfg.update(num_workers=1, drop_last=False)
    cfg.sampler.infinite = False
    try:
        with DefaultScope.overwrite_default_scope('mmpretrain'):
            loader = Runner.build_dataloader(cfg, seed=0)
        paths = {
            sample.metainfo['img_path']
            for batch in loader
            for sample in batch['data_samples']
        }
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    missing = set(map(str, (root / 'train').glob('class_?/[0-7].jpg'))) - paths
    if missing:
        return f'{missing.pop()} is missing'
    path = str(root / 'train' / 'class_0' / name)
    met = 'read' if path in paths else 'left out'
    if f'{printable(path)}: ' in log.read_text():
        met = 'named'
    either = fate == 'either' and met in ('read', 'named')
    return '' if either or met == fate else f'{met} in place of {fate}'


def encode(kind: str, mode: str = 'RGB', **options) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    image = Image.linear_gradient('L').resize((80, 60)).convert(mode)
    image.save(file, kind, **options)
    return file.getvalue()


def cases() -> Iterator[Case]:
    """What is tried, the file's name, what it holds, what must come of it."""
    yield 'empty', 'x.jpg', b'', 'named'
    yield 'a text', 'x.jpg', b'<html>404 Not Found</html>', 'named'
    bomb = bytearray(encode('PNG'))
    bomb[16:24] = struct.pack('>II', 20000, 20000)
    bomb[29:33] = struct.pack('>I', zlib.crc32(bomb[12:29]))
    yield 'header of a bomb', 'x.png', bytes(bomb), 'named'
    for kind in ('JPEG', 'PNG', 'GIF', 'WEBP', 'TIFF', 'BMP'):
        whole = encode(kind)
        name, half = f'x.{kind.lower()}', len(whole) // 2
        for percent in (1, 10, 50, 90):
            cut = whole[: len(whole) * percent // 100]
            yield f'{kind}, the first {percent} %', name, cut, 'named'
        zeroed = whole[:half] + bytes(64) + whole[half + 64 :]
        # Only PNG has checksums.
        fate = 'named' if kind == 'PNG' else 'either'
        yield f'{kind}, zeros in the middle', name, zeroed, fate
        yield f'{kind}, more behind', name, whole + bytes(99), 'read'
    for what, name, content in (
        ('a PNG named .jpg', 'x.jpg', encode('PNG')),
        ('CMYK', 'x.jpg', encode('JPEG', 'CMYK')),
        ('16 bits', 'x.png', encode('PNG', 'I;16')),
        ('palette', 'x.png', encode('PNG', 'P')),
        ('broken EXIF', 'x.jpg', encode('JPEG', exif=b'Exif\0\0MM\0x')),
    ):
        yield what, name, content, 'read'
    for name in (
        *(os.fsdecode(b'\xff\xfe.jpg'), 'Büro 图像 🙂.jpg', 'a\nb.jpg'),
        *('x' * 251 + '.jpg', '$(touch x);&|*?.jpg', '{0} %s %(x)d.jpg'),
    ):
        yield f'name {name[:20]!r}', name, encode('JPEG'), 'read'
        yield f'name {name[:20]!r}', name, b'no image', 'named'
    for what, make, fate in (
        ('a folder', Path.mkdir, 'left out'),
        ('a link', lambda p: p.symlink_to(p.with_name('0.jpg')), 'read'),
        ('a link to nothing', lambda p: p.symlink_to('nowhere'), 'named'),
    ):
        yield f'{what} named x.jpg', 'x.jpg', make, fate
