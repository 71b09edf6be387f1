# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features in files: stopped, shared by processes, searched."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import mmmoca
from mmmoca.apis import embedding
from mmmoca.apis.embedding import embed_to_file, encoder_of, stored_pictures
from mmmoca.apis.feature_files import read_features
from mmmoca.apis.search import faiss_search, nearest
from mmmoca.files import write_json

from ..distributed import run_processes
from ..encoders import write_run
from ..errors import raises
from ..tools import contents, run_tool

# The batches are uneven: 48 images in blocks of 16.
OPTIONS = dict(batch_size=5, num_workers=0, progress=False)


@pytest.fixture(scope='module', autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, 'BATCHES', 2)
        yield


@pytest.fixture(scope='module')
def encoder(root):
    write_run(root / 'run.pth')
    return mmmoca.load(root / 'run.pth', device='cpu')


@pytest.fixture(scope='module')
def written(root, encoder):
    """Files of the same features."""
    out = root / 'features.npy'
    about = embed_to_file(encoder, root / 'train', out, **OPTIONS)
    assert about['number'] == 48
    return out


def embed(root, out, **options):
    """In a process of its own."""
    torch.set_num_threads(1)
    embedding.BATCHES = 2
    encoder = mmmoca.load(f'{root}/run.pth', device='cpu')
    embed_to_file(encoder, f'{root}/train', out, **OPTIONS | options)


def embed_slowly(root, out):
    """With a rest after each block."""
    write = embedding.UnfinishedFile.write

    def slow_write(*arguments):
        write(*arguments)
        time.sleep(0.5)

    embedding.UnfinishedFile.write = slow_write
    embed(root, out)


def test_files_have_the_features_of_embed(root, encoder, written):
    expected = encoder.embed(root / 'train')
    features = read_features(written)
    assert np.load(written).dtype == np.float32
    torch.testing.assert_close(torch.tensor(features.rows), expected.avg)
    paths = [str(root / 'train' / name) for name in features.names]
    assert paths == expected.paths
    lines = Path(f'{written}.names.txt').read_text().splitlines()
    assert lines == features.names
    assert features.about['feature'] == 'avg'
    assert features.about['unreadable'] == []
    folder = {path.name for path in root.glob('*features*')}
    ends = ('', '.json', '.names.txt')
    assert folder == {f'features.npy{end}' for end in ends}


def test_parquet(root, encoder, written, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip('pyarrow.parquet')
    monkeypatch.setattr('mmmoca.apis.feature_files.ROWS', 20)
    monkeypatch.setattr('mmmoca.apis.feature_files.slices', None)
    out = tmp_path / 'a.parquet'
    embed_to_file(encoder, root / 'train', out, feature='cls-avg', **OPTIONS)
    expected = encoder.embed(root / 'train').pick('cls-avg').numpy()
    table = pyarrow.read_table(out)
    rows = np.stack(table.column('feature').to_numpy())
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-5)
    features = read_features(out)
    assert features.names == read_features(written).names
    assert pyarrow.ParquetFile(out).num_row_groups == 3
    for part in (slice(0, 48), slice(15, 41), slice(20, 40), slice(47, 99)):
        np.testing.assert_array_equal(features.rows[part], rows[part])
    assert len(features.rows) == 48
    assert {path.name for path in tmp_path.iterdir()} == {'a.parquet'}


@pytest.mark.processes
def test_killed_and_gone_on_by_others_is_the_same(root, written, tmp_path):
    out = tmp_path / 'features.npy'
    work = tmp_path / 'features.npy.incomplete'
    context = multiprocessing.get_context('forkserver')
    process = context.Process(target=embed_slowly, args=(root, out))
    process.start()
    done = work / 'done-0.txt'
    while not (done.is_file() and done.read_text()):
        assert process.is_alive()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not out.exists()
    assert done.read_text() != ''.join(f'{i}\n' for i in range(5))
    with done.open('a') as file:
        file.write('4')  # a line that was cut off
    run_processes(embed, 2, root, out)
    assert out.read_bytes() == written.read_bytes()
    names = Path(f'{written}.names.txt').read_text()
    assert Path(f'{out}.names.txt').read_text() == names
    assert not work.exists()


def test_what_is_there_is_not_made_again(root, encoder, written, tmp_path):
    time_of = written.stat().st_mtime_ns
    embed_to_file(encoder, root / 'train', written, **OPTIONS)
    assert written.stat().st_mtime_ns == time_of
    before = contents(root)
    with raises(FileExistsError, 'features.npy was made', '(feature, width '):
        embed_to_file(encoder, root / 'train', written, 'cls-avg', **OPTIONS)
    with raises(FileExistsError, '(images, number, names differ)'):
        embed_to_file(encoder, root / 'val', written, **OPTIONS)
    write_run(tmp_path / 'b.pth', seed=1)
    other = mmmoca.load(tmp_path / 'b.pth', device='cpu')
    with raises(FileExistsError, '(weights differ): give another OUT'):
        embed_to_file(other, root / 'train', written, **OPTIONS)
    assert contents(root) == before
    # Nor is what others have begun, or written.
    work = tmp_path / 'c.npy.incomplete'
    work.mkdir()
    write_json(work / 'about.json', dict(block=16))
    with raises(FileExistsError, 'c.npy.incomplete was made from'):
        embed_to_file(encoder, root / 'train', tmp_path / 'c.npy', **OPTIONS)
    np.save(tmp_path / 'd.npy', np.zeros(3))
    with raises(ValueError, 'd.npy was not written by tools/embed.py'):
        embed_to_file(encoder, root / 'train', tmp_path / 'd.npy', **OPTIONS)


def test_encoder_of_an_extracted_student(root, tmp_path):
    """A file with one encoder, which is the student of another."""
    run_tool(
        'tools/model_converters/extract_backbone.py',
        *(root / 'run.pth', tmp_path / 'student.pth'),
        *('--which', 'student'),
    )
    student = mmmoca.load(tmp_path / 'student.pth', device='cpu')
    out = tmp_path / 'features.npy'
    about = embed_to_file(student, root / 'val', out, **OPTIONS)
    assert about['which'] == 'student'
    assert encoder_of(about, device='cpu').about == student.about


def test_wrong_arguments_leave_nothing(root, encoder, tmp_path):
    (tmp_path / 'empty').mkdir()
    out = tmp_path / 'out'
    for name, images, options, message in (
        ('a.csv', root, {}, 'a.csv must end in .npy or .parquet'),
        ('a.npy', tmp_path / 'empty', {}, 'no image in'),
        ('a.npy', tmp_path / 'nowhere', {}, 'no file or folder'),
        ('a.npy', root, dict(batch_size=0), 'batch_size must be 1 or more'),
        ('a.npy', root, dict(feature='mean'), "'mean' is no feature"),
    ):
        with pytest.raises((OSError, ValueError), match=message):
            embed_to_file(encoder, images, out / name, **OPTIONS | options)
    assert not out.exists()


def test_names_that_a_list_cannot_hold(root, encoder, tmp_path):
    image = next((root / 'val').glob('*/*.jpg'))
    shutil.copy(image, tmp_path / 'a\nb.jpg')
    out = tmp_path / 'out.npy'
    with raises(ValueError, "'a\\nb.jpg' has a line break", '.parquet'):
        embed_to_file(encoder, tmp_path, out, **OPTIONS)
    pytest.importorskip('pyarrow')
    out = out.with_suffix('.parquet')
    embed_to_file(encoder, tmp_path, out, **OPTIONS)
    assert read_features(out).names == ['a\nb.jpg']


def test_unreadable_images(root, encoder, tmp_path):
    images = tmp_path / 'images'
    shutil.copytree(root / 'val', images)
    for name in ('class_1/0.jpg', 'class_2/4.jpg'):
        (images / name).write_text('no image')
    out = tmp_path / 'out.npy'
    with raises(OSError, 'cannot read the image', 'class_1/0.jpg'):
        embed_to_file(encoder, images, out, **OPTIONS)
    assert not out.exists()
    about = embed_to_file(
        encoder, images, out, skip_unreadable=True, **OPTIONS
    )
    assert about['unreadable'] == ['class_1/0.jpg', 'class_2/4.jpg']
    rows = torch.tensor(np.load(out))
    good = rows.isfinite().all(dim=1)
    assert (~good).nonzero().flatten().tolist() == [5, 14]
    expected = encoder.embed(root / 'val').avg
    torch.testing.assert_close(rows[good], expected[good])
    # They are found last.
    features = read_features(out)
    sims, found = nearest(features, rows[:1], 15)
    assert sims[0, -2:].tolist() != [1, 1] and 0.0 in sims[0].tolist()


def test_nearest_is_exact(root, encoder, written):
    features = read_features(written)
    rows = F.normalize(torch.tensor(np.load(written)), dim=1)
    query = 3 * rows[[4, 20]]
    sims, found = nearest(features, query, 5)
    expected = (rows[[4, 20]] @ rows.T).sort(dim=1, descending=True)
    torch.testing.assert_close(sims, expected.values[:, :5])
    assert found[:, 0].tolist() == [4, 20]
    again = encoder_of(features.about, device='cpu')
    path = root / 'train' / features.names[4]
    query = again.embed(path).avg
    torch.testing.assert_close(nearest(features, query, 1)[0], sims[:1, :1])
    (picture,) = stored_pictures(features.about, features.names[:1])
    assert picture.shape == (48, 48, 3) and 0 <= picture.min() < 1
    write_run(root / 'other.pth', seed=1)
    with raises(ValueError, 'other.pth is not the encoder', '--checkpoint'):
        encoder_of(features.about, root / 'other.pth', 'cpu')


def test_faiss(tmp_path):
    """Of 4000 features of 40 clusters, most neighbours are found."""
    pytest.importorskip('faiss')
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(40, 16, generator=generator)
    noise = torch.randn(4000, 16, generator=generator)
    rows = centres.repeat_interleave(100, 0) + 0.5 * noise
    path = tmp_path / 'a.npy'
    np.save(path, rows.numpy())
    write_json(f'{path}.json', {})
    Path(f'{path}.names.txt').write_text('x\n' * 4000)
    features = read_features(path)
    query = rows[::101]
    exact, best = nearest(features, query, 10)
    sims, found = faiss_search(features, path, query, 10, probes=8)
    hits = (found[:, :, None] == best[:, None]).any(-1).float().mean()
    assert 0.9 < hits <= 1
    # The index is there; with all of its cells it is exact.
    time_of = Path(f'{path}.faiss').stat().st_mtime_ns
    sims, found = faiss_search(features, path, query, 10, probes=4000)
    torch.testing.assert_close(sims, exact, rtol=1e-5, atol=1e-5)
    assert torch.equal(found, best)
    assert Path(f'{path}.faiss').stat().st_mtime_ns == time_of


def test_the_tools(root, written, tmp_path):
    out = tmp_path / 'a.npy'
    options = ('--batch-size', 5, '--workers', 0, '--device', 'cpu')
    command = (root / 'run.pth', root / 'train', out, *options)
    printed = run_tool('tools/embed.py', *command)
    assert printed.splitlines()[-1].startswith(f'{out}: 48 x 16, avg of ')
    expected = np.load(written)
    np.testing.assert_allclose(np.load(out), expected, rtol=1e-5, atol=1e-5)
    printed = run_tool(
        'tools/embed.py', *command, '--which', 'student', code=2
    )
    error = printed.splitlines()[-1]
    assert error.startswith('embed.py: error: ') and 'weights differ' in error

    image = root / 'train' / 'class_1' / '3.jpg'
    sheet, found = tmp_path / 'sheet.png', tmp_path / 'found.json'
    arguments = (out, image, 7, 'class_2/5.jpg', '--count', 4)
    arguments += ('--sheet', sheet, '--json', found, '--device', 'cpu')
    printed = run_tool('tools/search.py', *arguments)
    results = json.loads(found.read_text())['results']
    queries = [result['query'] for result in results]
    names = read_features(out).names
    assert queries == [str(image), names[7], 'class_2/5.jpg']
    assert [len(result['nearest']) for result in results] == [4] * 3
    first = results[0]['nearest'][0]
    assert first['name'] == 'class_1/3.jpg'
    assert first['similarity'] == pytest.approx(1)
    assert 7 not in [n['row'] for n in results[1]['nearest']]
    assert '  1.0000  class_1/3.jpg' in printed.splitlines()
    from PIL import Image

    assert min(Image.open(sheet).size) > 300
    printed = run_tool('tools/search.py', out, 'nothing', code=2)
    assert 'nothing is no file, no row from 0 to 47' in printed
    pytest.importorskip('faiss')
    run_tool('tools/search.py', out, 7, '--faiss', '--json', found)
    again = json.loads(found.read_text())['results'][0]['nearest']
    assert again[:4] == [pytest.approx(n) for n in results[1]['nearest']]
