# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names that others chose, in lists and folders and on command lines.

They lead to no file elsewhere, and neither shells nor terminals obey them.
"""

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

from PIL import Image

from mmmoca.checkpoints import read_checkpoint
from mmmoca.datasets import ImageFolder, LoadImage
from mmmoca.datasets.segmentation_checks import check_files
from mmmoca.evaluation.subsets import read_subset

from ...images import write_images
from ...tools import ROOT, run_tool
from .intruders import ended
from .trials import Outcome

CONTROLS = ('\x1b', '\x07', '\u202e', '\r')


def trials(folder: Path) -> Iterator[Outcome]:
    """Lists that lead out, command lines, and control characters."""
    for part in (paths, shells, names):
        place = folder / part.__name__
        place.mkdir()
        yield from part(place)


def paths(folder: Path) -> Iterator[Outcome]:
    """Lists that name files elsewhere; no secret may be read."""
    root, secret = folder / 'root', folder / 'secret'
    for name in ('a/0.png', 'b/0.png', '../secret/a.png'):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 8)).save(root / name)
    (root / 'b' / 'loop').symlink_to(root)
    lines = {
        'parent': 'b/../../secret/a.png',
        'absolute': f'{secret}/a.png',
        'absolute after a class': f'b/{secret}/a.png',
        'password file': '../../../../../../../etc/passwd',
        'doubled': 'b/..//../secret/./a.png',
        'through a link': 'b/loop/../secret/a.png',
        'NUL': 'b/0.png\0/../../secret/a.png',
        'device': '/dev/zero',
        'URL': 'file:///etc/passwd',
        'backslashes': '..\\..\\secret\\a.png',
        'home': '~/a.png',
        'variable': '$HOME/a.png',
    }
    for name, line in lines.items():
        path = folder / 'list.txt'
        path.write_text(f'a/0.png\nb/0.png\n{line}\n')

        for reader in (_subset, _images, _split):
            went_on, said = ended(reader, path, root, line)
            good = not went_on and any(
                part in said for part in (path.name, line[-10:])
            )
            kind = 'list that leads out of its folder'
            yield Outcome(kind, f'{reader.__name__[1:]}: {name}', good, said)


def _subset(path: Path, root: Path, line: str) -> object:
    return read_subset(str(path), str(root), ('a', 'b'))


def _images(path: Path, root: Path, line: str) -> None:
    options = dict(ann_file=str(path), with_label=False, pipeline=[])
    dataset = ImageFolder(str(root), **options)
    for index in range(len(dataset)):
        LoadImage(skip_unreadable=False).transform(
            dataset.get_data_info(index)
        )


def _split(path: Path, root: Path, line: str) -> None:
    """As mmseg's data sets join it."""
    place = os.path.join(root, line)
    info = dict(img_path=place, seg_map_path=place)
    dataset = mock.MagicMock(**{'load_data_list.return_value': [info]})
    dataset.data_prefix = dict.fromkeys(info, str(root))
    dataset.ann_file, dataset.backend_args = str(path), None
    dataset.img_suffix = dataset.seg_map_suffix = '.png'
    check_files(dataset)


def shells(folder: Path) -> Iterator[Outcome]:
    """Folders and arguments that a shell would run."""
    stands_in = folder / 'bin'
    stands_in.mkdir()
    for name in ('python', 'srun', 'scontrol'):
        (stands_in / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (stands_in / name).chmod(0o755)
    marker = folder / 'it_ran'
    arguments = (
        *('my dir', "it's", 'a "b"', '-x', '*', '~', '$HOME', '\\', '#'),
        *(f'$(touch {marker})', f'`touch {marker}`', f'; touch {marker}'),
        *(f'| touch {marker}', f'& touch {marker}', f'> {marker}'),
        *(f"'; touch {marker}; '", f'a\ntouch {marker}', f'{{{marker},}}'),
        f'HOME[$(touch {marker})]',
    )
    environment = os.environ | {
        'PATH': f'{stands_in}:{os.environ["PATH"]}',
        'SLURM_JOB_ID': '1',
    }
    scripts = {
        'dist_train.sh': lambda text: [text, '2', text],
        'dist_test.sh': lambda text: [text, text, '2', text],
        'slurm_train.sh': lambda text: [text] * 5,
        'slurm_test.sh': lambda text: [text] * 5,
    }

    def judge(name: str, command: list, wanted: str | None) -> Outcome:
        run = subprocess.run(
            list(map(str, command)),
            **dict(env=environment, cwd=folder, text=True),
            **dict(capture_output=True, timeout=60),
        )
        handed_on = wanted is not None and wanted in run.stdout
        good = not marker.exists() and (
            handed_on if wanted is not None else run.returncode != 0
        )
        marker.unlink(missing_ok=True)
        said = (run.stderr or run.stdout).strip()[-200:]
        return Outcome('command line', name, good, said.replace('\n', ' '))

    for text in arguments:
        for script, usage in scripts.items():
            command = [ROOT / 'tools' / script, *usage(text)]
            yield judge(f'{script} {text!r}', command, f'{text}\n')
        number = [ROOT / 'tools' / 'dist_train.sh', 'c.py', text]
        yield judge(f'dist_train.sh, processes {text!r}', number, None)
        make = ['make', '-sf', folder / 'Makefile', 'demo', f'DATA={text}']
        (folder / 'Makefile').write_text(
            (ROOT / 'Makefile')
            .read_text()
            .replace('demo: $(STAMP)', 'demo:')
            .replace('$(PY)', 'python')
        )
        # A line break ends a command of make: it is refused by the shell.
        wanted = None if '\n' in text else f'--data={text}\n'
        yield judge(f'make demo DATA={text!r}', make, wanted)


def names(folder: Path) -> Iterator[Outcome]:
    """Control characters in names are shown, and the names still work."""
    for number, control in enumerate(CONTROLS):
        root = folder / str(number)
        write_images(root, train=2, val=1, classes=2)
        odd = f'$\\x${control}[2J[b]<b>|'
        (root / 'train' / 'class_0').rename(root / 'train' / odd)
        broken = root / 'train' / odd / f'{odd}.jpg'
        broken.write_bytes(b'no image')
        listing = root / 'list.txt'
        listing.write_text(f'{odd}/missing{control}.jpg\nclass_1/0.jpg\n')
        damaged = root / f'{odd}.pth'
        damaged.write_bytes(b'no checkpoint')
        out = root / 'subsets'
        readers = {
            'image': partial(
                LoadImage(skip_unreadable=False).transform,
                dict(img_path=str(broken)),
            ),
            'checkpoint': partial(read_checkpoint, damaged),
            'converter': partial(
                run_tool,
                'tools/model_converters/extract_backbone.py',
                *(damaged, root / 'a.pth'),
            ),
            'subset': partial(
                read_subset,
                *(str(listing), str(root / 'train'), (odd, 'class_1')),
            ),
        }
        for name, reader in readers.items():
            went_on, said = ended(reader)
            good = not went_on and control not in said and '[2J' in said
            yield Outcome('control characters', f'{name} {odd!r}', good, said)
        broken.unlink()
        run_tool(
            'tools/dataset_converters/make_subset.py',
            *(root / 'train', out, '--shots', 1, '--percent', 50),
        )
        found = {
            path.relative_to(root).parts[0] for path in root.rglob('*.txt')
        }
        good = found == {'list.txt', 'subsets'}
        yield Outcome('control characters', f'make_subset {odd!r}', good)
