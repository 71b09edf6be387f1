# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Feature files do not depend on interruptions or the number of processes."""

import json
import os
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.multiprocessing import ProcessExitedException

import mmmoca
from mmmoca.apis import embedding
from mmmoca.apis.embedding import embed_to_file
from mmmoca.files import write_json

from ..helpers.distributed import run_processes
from ..helpers.encoders import write_run
from ..helpers.errors import raises
from ..helpers.tools import contents, run_tool

# The batches are uneven: 48 images in parts of 10.
OPTIONS = dict(batch_size=5, num_workers=0, progress=False)


@pytest.fixture(scope='module', autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, 'PART', 10)
        yield


@pytest.fixture(scope='module')
def encoder(root):
    write_run(root / 'run.pth')
    return mmmoca.load(root / 'run.pth', device='cpu')


def command(root, out):
    """Return the tool's command that writes ``out``."""
    options = '--batch-size', 5, '--workers', 0, '--device', 'cpu'
    return 'tools/embed.py', root / 'run.pth', root / 'train', out, *options


@pytest.fixture(scope='module')
def written(root, encoder):
    """Return a file of features that the tool has written."""
    out = root / 'features.npy'
    printed = run_tool(*command(root, out))
    assert printed.splitlines()[-1].startswith(f'{out}: 48 x 16, avg of ')
    return out


def names_of(out):
    return Path(f'{out}.names.txt').read_text().splitlines()


def embed(root, out):
    """Embed the training images; this runs in a new process."""
    torch.set_num_threads(1)
    embedding.PART = 10
    encoder = mmmoca.load(f'{root}/run.pth', device='cpu')
    embed_to_file(encoder, f'{root}/train', out, **OPTIONS)


def embed_and_die(root, out):
    """Embed, but die while this process writes its second part."""
    save, blocks = embedding.np.save, []

    def last_save(*arguments):
        blocks.append(arguments)
        if len(blocks) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        save(*arguments)

    embedding.np.save = last_save
    embed(root, out)


def test_parquet(root, encoder, tmp_path):
    """A Parquet file can contain names that a list of lines cannot."""
    pyarrow = pytest.importorskip('pyarrow.parquet')
    images = tmp_path / 'images'
    shutil.copytree(root / 'val' / 'class_0', images)
    (images / '0.jpg').rename(images / '0\n.jpg')
    with raises(ValueError, "'0\\n.jpg'", '.parquet'):
        embed_to_file(encoder, images, tmp_path / 'a.npy', **OPTIONS)
    out = tmp_path / 'a.parquet'
    for _ in range(2):
        about = embed_to_file(encoder, images, out, 'cls-avg', **OPTIONS)
    expected = encoder.embed(images)
    table = pyarrow.read_table(out)
    rows = torch.tensor(np.stack(table.column('feature').to_numpy()))
    torch.testing.assert_close(rows, expected.pick('cls-avg'))
    paths = [f'{images}/{name}' for name in table.column('name').to_pylist()]
    assert paths == expected.paths and about['width'] == rows.shape[1]
    whole = out.read_bytes()
    cut(out)
    embed_to_file(encoder, images, out, 'cls-avg', **OPTIONS)
    assert out.read_bytes() == whole


@pytest.mark.processes
def test_killed_and_gone_on_by_others_is_the_same(root, written, tmp_path):
    out = tmp_path / 'features.npy'
    work = tmp_path / 'features.npy.incomplete'
    with pytest.raises(ProcessExitedException, match='SIGKILL'):
        run_processes(embed_and_die, 2, root, out)
    assert not out.exists()
    assert 0 < len(list(work.glob('*.npy'))) < 5
    run_processes(embed, 2, root, out)
    assert out.read_bytes() == written.read_bytes()
    assert names_of(out) == names_of(written)
    assert not work.exists()


@pytest.fixture
def begun(root, encoder, tmp_path, monkeypatch):
    """Return all parts of a call that was stopped before it joined them."""
    out = tmp_path / 'features.npy'
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(embedding, '_join', Mock(side_effect=KeyboardInterrupt))
        embed_to_file(encoder, root / 'train', out, **OPTIONS)
    return tmp_path / 'features.npy.incomplete'


def test_parts_are_taken_for_no_other_encoder(root, begun, tmp_path):
    """A call that is killed while it removes parts leaves some of them."""
    (begun / 'about.json').unlink()
    student = mmmoca.load(root / 'run.pth', 'student', device='cpu')
    out = tmp_path / 'features.npy'
    embed_to_file(student, root / 'train', out, **OPTIONS)
    expected = student.embed(root / 'train', num_workers=0).avg
    torch.testing.assert_close(torch.tensor(np.load(out)), expected)
    assert not begun.exists()


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize(
    'damage',
    [
        cut,
        lambda file: file.write_bytes(b''),
        lambda file: np.save(file, np.load(file)[1:]),
        lambda file: np.save(file, np.load(file).astype(np.float64)),
    ],
    ids=['cut', 'empty', 'rows', 'dtype'],
)
@pytest.mark.slow
def test_what_is_damaged_is_made_anew(
    root, encoder, written, begun, tmp_path, damage
):
    out = tmp_path / 'features.npy'
    damage(min(begun.glob('*.npy')))
    for _ in range(2):
        embed_to_file(encoder, root / 'train', out, **OPTIONS)
        assert out.read_bytes() == written.read_bytes()
        damage(out)
    listing = Path(f'{out}.names.txt')
    before = listing.read_bytes()
    listing.write_bytes(before[:9])
    embed_to_file(encoder, root / 'train', out, **OPTIONS)
    assert listing.read_bytes() == before


def test_what_is_there_is_not_made_again(root, encoder, written, tmp_path):
    time_of = written.stat().st_mtime_ns
    embed_to_file(encoder, root / 'train', written, **OPTIONS)
    assert written.stat().st_mtime_ns == time_of
    before = contents(root)
    with raises(FileExistsError, 'features.npy', 'feature, width '):
        embed_to_file(encoder, root / 'train', written, 'cls-avg', **OPTIONS)
    student = (*command(root, written), '--which', 'student')
    printed = run_tool(*student, code=2)
    assert 'features.npy' in printed and 'weights' in printed
    assert contents(root) == before
    # What others have begun is not used either.
    work = tmp_path / 'c.npy.incomplete'
    work.mkdir()
    about = json.loads(Path(f'{written}.json').read_text())
    write_json(work / 'about.json', about | dict(part=16))
    with raises(FileExistsError, 'c.npy.incomplete', 'part'):
        embed_to_file(encoder, root / 'train', tmp_path / 'c.npy', **OPTIONS)


def test_wrong_arguments_leave_nothing(root, encoder, tmp_path):
    out = tmp_path / 'out'
    image = np.zeros((9, 9, 3), np.uint8)
    for images, name, feature, error, key in (
        (root, 'a.csv', 'avg', ValueError, 'a.csv'),
        (root, 'a.npy', 'mean', ValueError, 'mean'),
        ([image], 'a.npy', 'avg', TypeError, ''),  # this image has no name
    ):
        with raises(error, key):
            embed_to_file(encoder, images, out / name, feature, **OPTIONS)
    assert not out.exists()


def test_unreadable_images(root, encoder, tmp_path):
    images = tmp_path / 'images'
    shutil.copytree(root / 'val', images)
    for name in ('class_1/0.jpg', 'class_2/4.jpg'):
        (images / name).write_text('no image')
    out = tmp_path / 'out.npy'
    # The error is one line, without the traceback of a worker.
    with pytest.raises(OSError, match=r'^.*class_1/0\.jpg.*\Z'):
        embed_to_file(encoder, images, out, **OPTIONS | dict(num_workers=1))
    assert not out.exists()
    skip = dict(OPTIONS, skip_unreadable=True)
    about = embed_to_file(encoder, images, out, **skip)
    assert json.loads(Path(f'{out}.json').read_text()) == about
    assert about['feature'] == 'avg'
    assert about['unreadable'] == ['class_1/0.jpg', 'class_2/4.jpg']
    rows = torch.tensor(np.load(out))
    good = rows.isfinite().all(dim=1)
    assert (~good).nonzero().flatten().tolist() == [5, 14]
    expected = encoder.embed(root / 'val')
    torch.testing.assert_close(rows[good], expected.avg[good])
    paths = [str(root / 'val' / name) for name in names_of(out)]
    assert paths == expected.paths
    # Only that call allowed unreadable images.
    with raises(OSError, 'class_1/0.jpg'):
        embed_to_file(encoder, images, out, **OPTIONS)


def test_files_and_other_names_of_a_folder(
    root, encoder, tmp_path, monkeypatch
):
    monkeypatch.chdir(root)
    for place in ('val', './val', root / 'val'):
        embed_to_file(encoder, place, tmp_path / 'all.npy', **OPTIONS)
    files = sorted((root / 'val').glob('*/*.jpg'))[3:5]
    embed_to_file(encoder, files, tmp_path / 'two.npy', **OPTIONS)
    rows = [np.load(tmp_path / f'{name}.npy') for name in ('all', 'two')]
    np.testing.assert_allclose(rows[0][3:5], rows[1], rtol=1e-4, atol=1e-5)
