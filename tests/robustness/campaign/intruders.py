# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints and images that others have made to run code, or to choke.

Nothing of it may run, and the error must name the file.
"""

import contextlib
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from mmmoca.checkpoints import read_checkpoint
from mmmoca.datasets import LoadImage

from ...images import write_images
from ...runs import demo_runner
from ...test_checkpoints.files import LAYOUTS, checkpoint
from ..payloads import FORMS, write_payload
from .trials import Outcome
from .ways_in import ways_in

# A tool or a runner reads a file as the library does: of these two the first
# is what people try, the second what got through.
TOOL_FORMS = ('archive', 'lookup')


def trials(folder: Path) -> Iterator[Outcome]:
    """Payloads through every way in, configs in checkpoints, and bombs."""
    for part in (checkpoints, configs, bombs):
        place = folder / part.__name__
        place.mkdir()
        yield from part(place)


def ended(function: Callable, *arguments: object) -> tuple[bool, str]:
    """Whether a call went on, and its last line if it did not."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            function(*arguments)
    except Exception as error:
        return False, f'{type(error).__name__}: {error}'.strip()[-400:]
    return True, 'went on'


def refused(
    kind: str, name: str, path: Path, marker: Path, way: Callable
) -> Outcome:
    """Judge a way by its error, and by what is not there."""
    went_on, said = ended(way, path)
    # Some ways find it by another name.
    named = path.stem in said or (name.endswith('--resume') and '_9.' in said)
    good = not went_on and not marker.exists() and named
    if marker.exists():
        marker.rmdir()
        said = f'IT RAN: {said}'
    return Outcome(kind, name, good, said.replace('\n', ' '))


def checkpoints(folder: Path) -> Iterator[Outcome]:
    """A payload through every way in, in all forms and layouts."""
    ways = ways_in(folder)
    marker = folder / 'it_ran'
    for name, way in ways.items():
        tool = name.partition('.py')[1] or 'Runner' in name
        for form in TOOL_FORMS if tool else FORMS:
            path = folder / f'{form}_{len(name)}.pth'
            write_payload(path, marker, form, checkpoint('mmmoca')[0])
            kind = f'checkpoint that runs code ({form})'
            if name.startswith('torch.load'):
                # PyTorch names no file; nothing runs.
                outcome = refused(kind, name, path, marker, way)
                good = 'RAN' not in outcome.said and outcome.said != 'went on'
                yield outcome._replace(good=good)
            else:
                yield refused(kind, name, path, marker, way)
    for layout in LAYOUTS:
        for form in FORMS:
            path = folder / f'{layout}.pth'
            write_payload(path, marker, form, checkpoint(layout)[0])
            way = ways['extract_backbone, .pth']
            kind = 'layouts with a payload, converted'
            yield refused(kind, f'{layout}, {form}', path, marker, way)


def configs(folder: Path) -> Iterator[Outcome]:
    """The text of a config in a checkpoint, which MMEngine runs."""
    write_images(folder, train=4, val=1)
    options = {
        'train_cfg.max_iters': 2,
        'train_cfg.val_interval': 100,
        'default_hooks.checkpoint.interval': 1,
        'default_hooks.checkpoint.max_keep_ckpts': 2,
    }
    demo_runner(folder, 'first', **options).train()
    saved = read_checkpoint(folder / 'first' / 'iter_1.pth')
    marker = folder / 'it_ran'
    for key in ('config', 'cfg'):
        saved['meta'][key] = f"import os; os.mkdir('{marker}')"
    path = folder / 'a.pth'
    torch.save(saved, path)
    resumed = dict(resume=True, load_from=str(path))
    runner = demo_runner(folder, 'again', **options | resumed)
    went_on, said = ended(runner.train)
    good = went_on and not marker.exists() and runner.iter == 2
    yield Outcome('config text of a checkpoint', 'resumed', good, said)


def bombs(folder: Path) -> Iterator[Outcome]:
    """Small files that claim to be large."""
    torch.save(dict(state_dict=dict(a=torch.arange(16.0))), folder / 'a.pth')
    for size in (1 << 24, 1 << 30):
        path = folder / f'packed_{size}.pth'
        with (
            zipfile.ZipFile(folder / 'a.pth') as small,
            zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as big,
        ):
            for name in small.namelist():
                data = small.read(name)
                if name.endswith('/data/0'):
                    data = bytes(size)
                big.writestr(name, data)
        for lazy in (False, True):
            went_on, said = ended(read_checkpoint, path, lazy)
            good = not went_on and path.name in said
            yield Outcome('bomb', f'archive of {size}, {lazy=}', good, said)
    # The number of elements stands in the pickle as b'K\x10'.
    for claim in (b'M\xff\xff', b'J\xff\xff\xff\x7f'):
        path = folder / f'claims_{len(claim)}.pth'
        with (
            zipfile.ZipFile(folder / 'a.pth') as honest,
            zipfile.ZipFile(path, 'w') as other,
        ):
            for name in honest.namelist():
                data = honest.read(name).replace(b'K\x10', claim)
                other.writestr(name, data)
        for lazy in (False, True):
            went_on, said = ended(read_checkpoint, path, lazy)
            good = not went_on and path.name in said
            yield Outcome('bomb', f'tensor of {claim}, {lazy=}', good, said)
    pixels = np.zeros((4, 4), np.uint8)
    Image.fromarray(pixels).save(folder / 'a.png')
    honest = (folder / 'a.png').read_bytes()
    for side in (1 << 16, 1 << 20, (1 << 31) - 1):
        path = folder / f'{side}.png'
        # Width and height in the first chunk, which has a checksum.
        head = honest[12:16] + side.to_bytes(4, 'big') * 2 + honest[24:29]
        crc = zipfile.crc32(head).to_bytes(4, 'big')
        path.write_bytes(honest[:12] + head + crc + honest[33:])
        for backend in ('cv2', 'pillow'):
            loader = LoadImage(skip_unreadable=False, imdecode_backend=backend)
            went_on, said = ended(loader.transform, dict(img_path=str(path)))
            good = not went_on and path.name in said
            yield Outcome('bomb', f'{backend} image of {side}²', good, said)
