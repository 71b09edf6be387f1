# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images that are broken or awkward, and folders that change meanwhile.

Each trial adds something to a folder of 16 good images and takes them all
through the quick start's data set, pipeline and loader, with a worker; once
with the quick start's LoadImage and once with one that shrinks as it decodes.
What can be read must arrive, what cannot must be named in the log, and
nothing may hang. In the end all of it together, and a folder that loses
images, meet a run of ``tools/train.py``.
"""

import io
import multiprocessing
import os
import re
import shutil
import socket
import struct
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from PIL import Image, ImageDraw

from ...images import write_images
from .trials import DEMO_CONFIG, NO_VALIDATION, Outcome, log_of, train

BATCH = 4
SECONDS = 60


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


def trials(folder: Path) -> Iterator[Outcome]:
    """Every case with both loaders, then two real runs."""
    folder.chmod(0o755)  # for the trial that is not root
    write_images(folder / 'good', train=8, val=1, classes=2)
    for case in cases():
        for reduce_to in (None, 24):
            trial = folder / 'trial'
            shutil.rmtree(trial, ignore_errors=True)
            images = trial / 'train' / 'class_0'
            shutil.copytree(folder / 'good', trial)
            case.add(images)
            problem = judge(case, images, reduce_to)
            yield Outcome(case.row, case.name, not problem, problem)
    yield from real_runs(folder)


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
    refused = r'of the last \d+ images could not be read.*max_unreadable='
    yield Case(row, 'all vanish', nothing, {}, vanish_all, refused)


class Loaded(NamedTuple):
    """What a loader gave: paths, its log, and the error if there was one."""

    paths: list[str]
    log: str
    error: str


def judge(case: Case, images: Path, reduce_to: int | None) -> str:
    """Take the folder through the loader; what is wrong, '' if nothing."""
    loaded = load_apart(images, reduce_to, case.change)
    if loaded is None:
        return f'hangs: no end in {SECONDS} s'
    last = loaded.error.strip().rpartition('\n')[2]
    if case.refused:
        said = re.search(case.refused, last)
        return '' if said else f'said {last or "nothing"!r}'
    if last:
        return last
    problems = []
    arrived = {os.path.basename(path) for path in loaded.paths}
    good = {path.name for path in (images.parent / 'class_1').iterdir()}
    if missing := good - arrived - case.fates.keys():
        problems.append(f'good images are missing: {missing}')
    for name, fate in case.fates.items():
        shown = name.encode(errors='backslashreplace').decode()
        named = f'{shown}: ' in loaded.log and 'unreadable so far' in (
            loaded.log
        )
        met = (['named'] if named else []) + (
            ['read'] if _arrived(name, images, loaded.paths) else []
        )
        expected = {'either': [['named'], ['read']], 'left out': [[]]}
        if case.change and fate == 'named':
            met = met[:1]  # it was read before the change
        if met not in expected.get(fate, [[fate]]):
            problems.append(f'{name!r} should be {fate}, but is {met}')
    return '; '.join(problems)


def _arrived(name: str, images: Path, paths: list[str]) -> bool:
    """Whether a file of the case's folder, not its namesake, arrived."""
    return any(
        os.path.basename(path) == name and '/class_0/' in path
        for path in paths
    )


def load_apart(
    images: Path,
    reduce_to: int | None,
    change: Callable[[Path], None] | None,
) -> Loaded | None:
    """Load in a process of its own; None if it does not end."""
    context = multiprocessing.get_context('fork')
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_load, args=(sender, images, reduce_to, change)
    )
    process.start()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else None
    finally:
        if process.is_alive():
            process.join(5)
        if process.is_alive():
            os.killpg(process.pid, 9)
        process.join()


def _load(
    sender: object,
    images: Path,
    reduce_to: int | None,
    change: Callable[[Path], None] | None,
) -> None:
    os.setsid()  # its worker is in its group
    root = images.parents[1]
    log = root / 'log'
    MMLogger.get_instance('images', log_file=str(log), log_level='WARNING')
    if any(not path.stat().st_mode & 0o777 for path in _regular(images)):
        os.chmod(root, 0o777)
        os.chmod(log, 0o666)
        os.seteuid(65534)  # root may read everything
    paths, error = [], ''
    try:
        for path in loaded_paths(root, reduce_to, bool(change)):
            paths.append(path)
            if change is not None and len(paths) == BATCH:
                change(images)
    except Exception:
        error = traceback.format_exc()
    sender.send(Loaded(paths, log.read_text() if log.exists() else '', error))


def _regular(folder: Path) -> Iterator[Path]:
    return (p for p in folder.iterdir() if p.is_dir() or p.is_file())


def loaded_paths(
    root: Path, reduce_to: int | None, long: bool
) -> Iterator[str]:
    """Paths of the images that the quick start's loader gives, in order."""
    cfg = Config.fromfile(DEMO_CONFIG).train_dataloader
    cfg.dataset.data_root = str(root)
    cfg.update(batch_size=BATCH, persistent_workers=False, drop_last=False)
    cfg.sampler.infinite = long
    cfg.dataset.pipeline[1].reduce_to = reduce_to
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        loader = Runner.build_dataloader(cfg, seed=0)
    batches = 5 * len(loader)
    for batch, _ in zip(loader, range(batches)):
        assert batch['inputs'][0].shape[1:] == (3, 48, 48)
        yield from (s.metainfo['img_path'] for s in batch['data_samples'])


def real_runs(folder: Path) -> Iterator[Outcome]:
    """All kinds in one folder; and one that loses images meanwhile."""
    many = folder / 'many'
    write_images(many, train=100, val=1)
    named = []
    for number, case in enumerate(cases()):
        if case.change or case.refused:
            continue
        place = many / 'train' / f'{number:03}'
        place.mkdir()
        case.add(place)
        if 'may not' not in case.name:
            named += [place / k for k, v in case.fates.items() if v == 'named']
    options = NO_VALIDATION | {
        'train_cfg.max_iters': 60,
        'train_dataloader.dataset.data_root': many,
        'train_dataloader.batch_size': 16,
        'default_hooks.logger.interval': 10,
    }
    row = 'images: tools/train.py'
    run = train(folder / 'all', options)
    code = run.wait(300)
    log = log_of(folder / 'all').read_text(errors='backslashreplace')
    silent = [
        str(path)
        for path in named
        if str(path).encode(errors='backslashreplace').decode() not in log
    ]
    said = f'status {code}; {len(named) - len(silent)} of {len(named)} named'
    yield Outcome(row, 'all kinds', code == 0 and not silent, said)
    run = train(folder / 'losing', options | {'train_cfg.max_iters': 100})
    while run.poll() is None and '10/100' not in (
        text := log_of(folder / 'losing').read_text(errors='replace')
    ):
        time.sleep(0.2)
    gone = sorted((many / 'train' / 'class_0').iterdir())[:20]
    for path in gone:
        path.unlink()
    code = run.wait(300)
    text = log_of(folder / 'losing').read_text(errors='replace')
    met = sum(f'{path}:' in text for path in gone)
    said = f'status {code}; {met} of {len(gone)} named'
    yield Outcome(row, 'images vanish', code == 0 and met > 0, said)
