# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Comparing checkpoints on scikit-learn's digits."""

import json
import random
import re
import shutil
from argparse import ArgumentTypeError
from pathlib import Path

import cv2
import numpy as np
import pytest
import timm
import torch
from mmengine.config import Config
from PIL import Image

import mmmoca
from mmmoca.apis.comparison import evaluate_unlabelled, untrain
from mmmoca.apis.dense_comparison import (
    DENSE,
    evaluate_masks,
    images_with_masks,
)
from mmmoca.apis.encoder import Encoder
from mmmoca.apis.features import Embeddings
from mmmoca.apis.images import Images
from mmmoca.checkpoints import read_checkpoint
from mmmoca.evaluation import presets
from mmmoca.models import sincos_positions_2d

from ..helpers.checkpoint_files import (
    HEADS,
    PATCH,
    SIZE,
    checkpoint,
    mm_vit,
    randomise,
    with_prefix,
)
from ..helpers.images import CONFIGS
from ..helpers.judges import centre, knn_judge, low_shot_judge, rank_judge
from ..helpers.tools import contents, load_tool

CONFIG = CONFIGS / 'demo' / 'knn_vit-tiny_textures.py'


@pytest.fixture(scope='module')
def tool():
    return load_tool('analysis_tools/compare')


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """Write 200 digits, random backbones of three methods, and a config."""
    root = tmp_path_factory.mktemp('compare')
    make_digits = load_tool('drawn_sets/make_digits').make_digits
    make_digits(root / 'digits', size=SIZE, limit=200)
    cfg = Config.fromfile(CONFIG)
    cfg.model.backbone.img_size = SIZE
    cfg.model.backbone.arch.num_heads = HEADS
    _, resize, crop, _ = cfg.test_dataloader.dataset.pipeline
    resize.scale = crop.crop_size = SIZE
    cfg.dump(root / 'knn.py')
    for layout in ('mmmoca', 'msn', 'mocov3'):
        torch.save(checkpoint(layout)[0], root / f'{layout}.pth')
    return root


@pytest.fixture(scope='module')
def compare(tool, files):
    """Return a function that runs the tool on these files."""

    def run(out, names, *options):
        line = [name.format(files) for name in names]
        line += ['--data-root', files / 'digits', '--config', files / 'knn.py']
        line += ['--out-dir', out, '--epochs', 30, '--batch-size', 32]
        line += ['--percent', 20, '--num-workers', 0, *options]
        tool.main(list(map(str, line)))
        return json.loads((out / 'compare.json').read_text())['results']

    return run


@pytest.fixture(scope='module')
def report(compare, tmp_path_factory):
    """Compare two methods by all protocols; return folder and results."""
    out = tmp_path_factory.mktemp('out')
    return out, compare(out, ['{}/mmmoca.pth', 'MSN={}/msn.pth'])


def _features(files, name, split):
    """Return features, labels and names of a split, in the order of files."""
    paths = sorted((files / 'digits' / split).glob('*/*.png'))
    images = np.stack([Image.open(path).convert('RGB') for path in paths])
    pixels = torch.tensor(images.transpose(0, 3, 1, 2))
    encoder = mmmoca.load(files / f'{name}.pth', num_heads=HEADS, device='cpu')
    with torch.no_grad():
        found = encoder((pixels - 127.5) / 63.75)
    labels = np.array([int(path.parent.name) for path in paths])
    return found, labels, [f'{p.parent.name}/{p.name}' for p in paths]


def one_channel(images, **_):
    """Return the loaded pixels as the images' features."""
    rows = [image.flatten().float() for image in images]
    return Embeddings(avg=torch.stack(rows))


@pytest.mark.slow
def test_images_without_labels(tool, files, tmp_path):
    """The views change colours, and depend on the seed alone."""
    for number in range(30):
        colour = number * 8, 255 - number * 8, number * 97 % 256
        Image.new('RGB', (SIZE, SIZE), colour).save(tmp_path / f'{number}.png')
    (tmp_path / '7.png').write_text('none')
    file, digits = files / 'mmmoca.pth', files / 'digits' / 'val'
    encoder = mmmoca.load(file, num_heads=HEADS, device='cpu')
    before = random.getstate(), torch.get_rng_state().tolist()
    found = evaluate_unlabelled(encoder, tmp_path, num_workers=0)
    assert before == (random.getstate(), torch.get_rng_state().tolist())
    assert found['agreement'] < 50 and found['unreadable'] == 1
    grey = dict(type='mmmoca.LoadImage', color_type='grayscale')
    bands = dict(type='mmmoca.LoadBands', channels=1)
    for loader in grey, bands:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoder, 'pipeline', [loader])
            patch.setattr(encoder, 'embed', one_channel)
            assert 0 <= evaluate_unlabelled(encoder, digits)['agreement'] < 99
    line = file, '--images', digits, '--num-heads', HEADS, '--num-workers', 2
    tool.main([*map(str, line), '--out-dir', f'{tmp_path}/out'])
    written = json.loads((tmp_path / 'out' / 'compare.json').read_text())
    (result,) = written['results']
    expected = evaluate_unlabelled(encoder, digits, num_workers=0)
    assert result['agreement'] == expected['agreement']
    assert 0 < result['agreement'] < 90 and 'knn' not in result


# As published: MOCA uses k-NN and lambda of the authors' code. MSN uses [CLS],
# and in low-shot the lambda of its own code.
@pytest.mark.slow
@pytest.mark.parametrize(
    'row, name, token, temperature, regularization',
    [(0, 'mmmoca', 'avg', 0.04, 0.1), (1, 'msn', 'cls', 0.07, 0.0025)],
)
def test_equals_sklearn(
    files, report, row, name, token, temperature, regularization
):
    out, results = report
    known, labels, names = _features(files, name, 'train')
    query, truth, _ = _features(files, name, 'val')
    for k in (10, 20):
        bank, queries = (getattr(f, token).numpy() for f in (known, query))
        judge = knn_judge(bank, labels, k, temperature)
        assert results[row]['knn'][f'k={k}'] == pytest.approx(
            100 * judge.score(queries, truth)
        )

    make_subsets = load_tool('dataset_converters/make_subset').make_subsets
    lists = make_subsets(
        files / 'digits' / 'train', out / f'lists{row}', (1, 2, 5), (20,)
    )
    rows = {name: row for row, name in enumerate(names)}
    # before the final norm
    bank, queries = (
        centre(getattr(f, f'raw_{token}').numpy()) for f in (known, query)
    )
    for place, shots in enumerate((1, 2, 5)):
        accuracies = []
        for path in lists[3 * place : 3 * place + 3]:
            train = [rows[line] for line in path.read_text().split()]
            judge = low_shot_judge(bank[train], labels[train], regularization)
            accuracies.append(100 * judge.score(queries, truth))
        found = results[row]['lowshot'][place]
        assert found['subset'] == f'{shots} shot'
        assert found['images'] == [10 * shots] * 3
        # Of 50 images, one may lie between two classes.
        assert found['top1'] == pytest.approx(accuracies, abs=2.01)

    expected = rank_judge(_features(files, name, 'val')[0].avg)
    assert results[row]['rank_me'] == pytest.approx(expected, rel=1e-3)

    # Random features of digits are separable; chance would be a tenth.
    assert results[row]['linear']['top1'] > 25


@pytest.mark.slow
def test_table(report):
    out, (result, _) = report
    heads, _, first, *_, last, chance = (
        [cell.strip() for cell in line.split('|')[2:-1]] or line
        for line in (out / 'compare.md').read_text().splitlines()
    )
    row = dict(zip(heads, first, strict=True))
    assert row['linear'] == f'{result["linear"]["top1"]:.1f}'
    subset = result['lowshot'][2]
    assert row['5 shot'] == f'{subset["mean"]:.1f} ± {subset["std"]:.1f}'
    assert row.keys() >= {'k-NN, k=10', 'k-NN, k=20', '1 shot', '20 %'}
    assert last.startswith('- MSN: teacher encoder; k-NN cls (T = 0.07)')
    assert ' 14.1 ' in chance  # 100 / 50**0.5


@pytest.mark.slow
def test_features_are_extracted_once(compare, files, tmp_path):
    """Files with the same weights share features, and others do not.

    A config may have its data_preprocessor inside the model, or outside of it
    as in mmpretrain's configs.
    """
    content = read_checkpoint(files / 'mmmoca.pth')
    content['meta']['mmmoca']['feature'] = 'cls'
    torch.save(content, tmp_path / 'of_cls.pth')
    cfg = Config.fromfile(files / 'knn.py')
    cfg.data_preprocessor = cfg.model.pop('data_preprocessor')
    cfg.dump(tmp_path / 'beside.py')

    def run(names, *options):
        short = '--protocols', 'knn', 'lowshot', '--shots', '2'
        results = compare(tmp_path, names, *short, *options)
        times = {
            path.name: path.stat().st_mtime_ns
            for path in (tmp_path / 'features').glob('*.npy')
        }
        return results, times

    names = 'cls={}/mmmoca.pth:cls', 'both={}/mmmoca.pth:cls-avg'
    (cls, both), times = run(names)
    assert both['settings']['knn'] == 'cls-avg'
    assert cls['settings']['knn'] == 'cls'
    assert cls['lowshot'] != both['lowshot']
    file = f'{tmp_path}/of_cls.pth'
    names, beside = (f'again={file}:cls-avg', file), tmp_path / 'beside.py'
    (again, recorded), later = run(names, '--config', beside)
    assert again['knn'] == both['knn'] and later == times
    assert recorded['knn'] == cls['knn']
    assert len(times) == 2
    # MoCo-v3 evaluates its student, all others their teacher.
    (student,), later = run(['{}/mocov3.pth'])
    assert student['settings']['which'] == 'student' and len(later) > 2
    only = '--protocols', 'knn', '--which', 'teacher'
    (teacher,), _ = run(['{}/mocov3.pth'], *only)
    assert teacher['settings']['which'] == 'teacher'
    assert teacher['knn'] != student['knn']


@pytest.mark.slow
def test_untrained_weights_of_the_same_vit(compare, files, tmp_path):
    """All rows use the same weights, initialised as in a MOCA model."""
    names = ['untrained', '{}/mmmoca.pth', 'again=untrained:cls']
    _, _, cls = compare(tmp_path, names, '--protocols', 'knn')
    assert cls['settings']['knn'] == 'cls'
    # Accuracies of so few images may be equal.
    kept = [p.read_bytes() for p in (tmp_path / 'features').glob('*.npy')]
    assert len(kept) == len(set(kept)) == 4
    encoder = mmmoca.load(files / 'mmmoca.pth', num_heads=HEADS)
    untrain(encoder)
    vit = encoder.backbone
    weight = vit.layers[0].ffn.layers[0][0].weight  # Glorot's uniform
    assert weight.abs().max() <= (6 / sum(weight.shape)) ** 0.5
    positions = sincos_positions_2d(vit.patch_resolution, vit.embed_dims)
    assert torch.equal(vit.pos_embed[0, 1:].cpu(), positions)
    with pytest.raises(SystemExit):
        compare(tmp_path, ['untrained'])


def test_checkpoints_on_the_command_line(tool, tmp_path):
    folder = tmp_path / 'lr=1e-4:b'
    folder.mkdir()
    path = str(folder / 'a.pth')
    Path(path).touch()
    assert tool.parse_entry(path) == (None, path, None)
    assert tool.parse_entry(f'A b={path}:msn') == ('A b', path, 'msn')
    for text in (f'A=B={path}', f'{path}:dense'):
        with pytest.raises(ArgumentTypeError, match='dense|A=B'):
            tool.parse_entry(text)
    Path(f'{path}:cls').touch()  # a file of that name has priority
    assert tool.parse_entry(f'{path}:cls').feature is None
    assert tool.DENSE == DENSE
    assert tool.FEATURES == presets.FEATURES
    assert tuple(presets.PRESETS) == tool.PRESETS


def test_bad_files_are_one_line_and_leave_nothing(
    compare, files, tmp_path, capsys
):
    no_norm = read_checkpoint(files / 'mmmoca.pth')
    del no_norm['state_dict']['teacher.ln1.weight']
    torch.save(no_norm, tmp_path / 'no_norm.pth')
    cut = shutil.copytree(files / 'digits', tmp_path / 'cut')
    for path in (cut / 'val').glob('*/*.png'):
        path.write_bytes(path.read_bytes()[:99])
    for name, options, message in (
        ('{}/mmmoca.pth', ['--data-root', tmp_path], str(tmp_path)),
        ('{}/mmmoca.pth', ['--data-root', cut], str(cut)),
        (f'{tmp_path}/no_norm.pth', [], 'no_norm.pth'),
        ('{}/mmmoca.pth', ['--shots', 99], '99'),
    ):
        with pytest.raises(SystemExit):
            compare(tmp_path / 'out', [name], *options)
        assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / 'out').exists()


@pytest.mark.slow
def test_unreadable_images_are_left_out_and_counted(compare, files, tmp_path):
    """Folders without those images give the same results; copies are named."""
    options = '--protocols', 'knn', 'lowshot', '--shots', '2'
    tables = []
    for name in ('damaged', 'without'):
        folder = shutil.copytree(files / 'digits', tmp_path / name)
        known = sorted((folder / 'train').glob('*/*.png'))[0]
        shutil.copy(known, folder / 'val' / known.parent.name / 'copy.png')
        for split in ('train', 'val'):
            path = sorted((folder / split).glob('*/*.png'))[7]
            path.write_text('none') if name == 'damaged' else path.unlink()
        out, root = tmp_path / f'out_{name}', ('--data-root', folder)
        tables += compare(out, ['{}/mmmoca.pth'], *options, *root)
    damaged, without = tables
    place = str(tmp_path / 'damaged')
    assert damaged.pop('unreadable') == {place: 2}
    assert without.pop('unreadable') == {}
    assert damaged == without
    table = (tmp_path / 'out_damaged' / 'compare.md').read_text()
    assert f'{place}: 2' in table and '- val: 1 images are also in' in table


@pytest.mark.slow
def test_an_earlier_table_is_kept(compare, tmp_path):
    names, tables = ['{}/mmmoca.pth', '{}/mmmoca.pth:cls'], {}
    for number, name in enumerate(names, 1):
        compare(tmp_path, [name], '--protocols', 'knn')
        tables[f'compare-{number}'] = contents(tmp_path)['compare.json']
    compare(tmp_path, names[:1], '--protocols', 'knn')
    for name, table in tables.items():
        assert contents(tmp_path)[f'{name}.json'] == table


@pytest.mark.slow
def test_images_that_can_be_read_again(compare, files, tmp_path, monkeypatch):
    """Images may be unreadable for a time, as on a remote disk."""
    found, read = [], Images.prepare

    def sometimes(images, index):
        return (OSError('away'), ()) if index == 3 else read(images, index)

    for away in (True, False):
        with monkeypatch.context() as patch:
            if away:
                patch.setattr(Images, 'prepare', sometimes)
            options = tmp_path, ['{}/mmmoca.pth'], '--protocols', 'knn'
            found += compare(*options)
    place = str(files / 'digits')
    assert [result['unreadable'] for result in found] == [{place: 2}, {}]


@pytest.fixture(scope='module')
def shapes(files):
    """Draw light squares on dark, with masks, and save two encoders."""
    rng = np.random.default_rng(0)
    for split, count in (('train', 12), ('val', 4)):
        for kind in ('images', 'masks'):
            (files / 'shapes' / kind / split).mkdir(parents=True)
        for index in range(count):
            mask = np.zeros((64, 64), np.uint8)
            top, left = rng.integers(0, 32, 2)
            mask[top : top + 32, left : left + 32] = 1
            noise = rng.integers(0, 60, (64, 64, 3)).astype(np.uint8)
            name = f'{split}/{index}.png'
            image = Image.fromarray(noise + 180 * mask[..., None])
            image.save(files / 'shapes' / 'images' / name)
            Image.fromarray(mask).save(files / 'shapes' / 'masks' / name)
    arch = dict(num_layers=2, num_heads=2, feedforward_channels=128)
    vit = mm_vit(arch=arch | dict(embed_dims=64))
    content = dict(state_dict=with_prefix('backbone.', vit.state_dict()))
    torch.save(content, files / 'wide.pth')
    size = dict(embed_dim=128, depth=2, num_heads=2, patch_size=PATCH)
    vit = timm.create_model('vit_small_patch16_dinov3', num_classes=0, **size)
    torch.save(randomise(vit, 0).state_dict(), files / 'dinov3.pth')
    cfg = Config.fromfile(files / 'knn.py')
    cfg.model.backbone.arch.num_heads = 2
    cfg.dump(files / 'wide.py')
    return files / 'shapes'


def _in_context(files, shapes):
    """Compute the mIoU of a bank of all patches with NumPy."""
    encoder = mmmoca.load(
        files / 'wide.pth', num_heads=2, img_size=SIZE, device='cpu'
    )
    rows, masks = {}, {}
    for split in ('train', 'val'):
        paths = sorted((shapes / 'images' / split).glob('*.png'))
        images = [
            cv2.resize(np.asarray(Image.open(path)), (SIZE, SIZE))
            for path in paths
        ]
        pixels = torch.tensor(np.stack(images).transpose(0, 3, 1, 2))
        with torch.no_grad():
            maps = encoder((pixels - 127.5) / 63.75).patches
        maps = maps.half().float().flatten(2).mT
        rows[split] = (maps / maps.norm(dim=2, keepdim=True)).numpy()
        masks[split] = np.stack(
            [
                np.asarray(Image.open(shapes / 'masks' / split / path.name))
                for path in paths
            ]
        )[:, ::2, ::2]
    cells = masks['train'].reshape(-1, 4, PATCH, 4, PATCH)
    shares = cells.mean(axis=(2, 4)).ravel()
    bank = rows['train'].reshape(len(shares), -1)
    found = []
    for query in rows['val']:
        near = np.argsort(-(query @ bank.T), axis=1)[:, :30]
        sims = np.take_along_axis(query @ bank.T, near, axis=1)
        weights = np.exp((sims - sims.max(1, keepdims=True)) / 0.02)
        votes = (weights * shares[near]).sum(1) / weights.sum(1)
        votes = cv2.resize(votes.reshape(4, 4), (SIZE, SIZE))
        found.append(votes > 0.5)
    found, truth = np.stack(found), masks['val'] > 0
    return 50 * sum(
        (f & t).sum() / (f | t).sum()
        for f, t in ((found, truth), (~found, ~truth))
    )


@pytest.mark.slow
def test_patches(compare, files, shapes, tmp_path, monkeypatch, capsys):
    """An ordinary ViT and DINOv3's work; a second call reuses the features."""
    calls = []
    encode = Encoder._encode
    monkeypatch.setattr(
        Encoder, '_encode', lambda *a: calls.append(1) or encode(*a)
    )
    options = '--config', files / 'wide.py', '--masks', shapes
    names = '{}/wide.pth', '{}/dinov3.pth'
    protocols = '--protocols', 'incontext'
    wide, _ = compare(tmp_path, names, *protocols, *options)
    assert wide['incontext']['bank_patches'] == 12 * 16
    assert wide['incontext']['mIoU'] == pytest.approx(
        _in_context(files, shapes), abs=1
    )
    assert (tmp_path / 'compare.png').stat().st_size > 5000
    assert calls
    calls.clear()
    again, *_ = compare(
        tmp_path, names[:1], *protocols, 'linear-seg', *options
    )
    assert not calls and again.pop('linear-seg')['mIoU'] > 60
    assert again == wide
    capsys.readouterr()
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr('os.sysconf', lambda name: 100)
        compare(tmp_path, names[:1], *protocols, *options)
    assert 'GiB' in capsys.readouterr().err
    encoder = mmmoca.load(files / 'dinov3.pth')
    untrain(encoder)
    vit = encoder.backbone
    assert vit.pos_embed is None and vit.register_tokens.std() < 0.03


def test_damaged_maps_are_made_anew(files, shapes, tmp_path):
    encoder = mmmoca.load(files / 'wide.pth', num_heads=2)
    expected = evaluate_masks(encoder, shapes, tmp_path, steps=1)
    cut, empty = tmp_path.glob('*.patches.npy')
    cut.write_bytes(cut.read_bytes()[:-9])
    empty.write_bytes(b'')
    assert evaluate_masks(encoder, shapes, tmp_path, steps=1) == expected


@pytest.mark.parametrize('split', ['train', 'val'])
def test_masks_without_classes(files, shapes, tmp_path, split):
    root = shutil.copytree(shapes, tmp_path / 'shapes')
    for path in (root / 'masks' / split).iterdir():
        Image.new('L', (64, 64), 255).save(path)
    encoder = mmmoca.load(files / 'wide.pth', num_heads=2)
    with pytest.raises(ValueError, match='255'):
        evaluate_masks(encoder, root, tmp_path)


@pytest.mark.parametrize('fault', ['turn', 'missing'])
def test_bad_masks_are_named(files, shapes, tmp_path, fault):
    encoder = mmmoca.load(files / 'wide.pth', num_heads=2)
    root = shutil.copytree(shapes, tmp_path / 'shapes')
    path = root / 'masks' / 'train' / '3.png'
    # Indices of a palette are labels, and a photo may be turned.
    photo = root / 'images' / 'train' / '3.png'
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.open(photo).resize((64, 40)).save(photo, exif=turned)
    mask = Image.fromarray(np.full((64, 40), 2, np.uint8)).convert('P')
    mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
    mask.save(path)
    _, masks = images_with_masks(encoder, root, 'train')
    assert 2 in np.stack(masks)
    if fault == 'turn':  # by 180 degrees, perhaps without the mask
        turned[0x0112] = 3
        Image.open(photo).resize((64, 40)).save(photo, exif=turned)
        mask.resize((64, 40)).save(path)
    else:
        path.unlink()
    with pytest.raises((OSError, ValueError), match=r'train/3\.png'):
        images_with_masks(encoder, root, 'train')
