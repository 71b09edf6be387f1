# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Comparing checkpoints on scikit-learn's digits."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmpretrain.models import ImageClassifier
from mmpretrain.registry import MODELS
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from tests.images import CONFIGS

TOOLS = Path(__file__).parents[2] / 'tools'
CONFIG = CONFIGS / 'demo' / 'knn_vit-tiny_textures.py'


@pytest.fixture(scope='module')
def tool():
    folders = [
        str(TOOLS / name) for name in ('dataset_converters', 'analysis_tools')
    ]
    sys.path[:0] = folders
    import compare
    import make_digits

    yield compare, make_digits
    for folder in folders:
        sys.path.remove(folder)
    for name in ('compare', '_comparison', 'make_digits'):
        del sys.modules[name]


@pytest.fixture(scope='module')
def files(tool, tmp_path_factory):
    """200 digits, and two backbones of random weights."""
    root = tmp_path_factory.mktemp('compare')
    tool[1].make_digits(root / 'digits', limit=200)
    model = Config.fromfile(CONFIG).model
    for seed in (0, 1):
        torch.manual_seed(seed)
        backbone = MODELS.build(model.backbone)
        backbone.init_weights()
        state = {
            f'teacher.{name}': value + 0.1 * torch.randn_like(value)
            for name, value in backbone.state_dict().items()
        }
        torch.save(dict(state_dict=state), root / f'{seed}.pth')
    return root


def _arguments(files, out, *more, checkpoints=(0, 1)):
    return [
        *(str(files / f'{number}.pth') for number in checkpoints),
        *('--data-root', str(files / 'digits'), '--config', str(CONFIG)),
        *('--out-dir', str(out), '--epochs', '30', '--batch-size', '32'),
        *('--percent', '20', '--num-workers', '0', *more),
    ]


@pytest.fixture(scope='module')
def report(tool, files, tmp_path_factory):
    out = tmp_path_factory.mktemp('out') / 'a'
    tool[0].main(_arguments(files, out))
    return out


def _features(files, number, split):
    """[AVG] and the mean before the norm, computed image by image."""
    cfg = Config.fromfile(CONFIG).model
    feats = {}
    state = torch.load(files / f'{number}.pth')['state_dict']
    paths = sorted((files / 'digits' / split).glob('*/*.png'))
    pixels = torch.stack(
        [
            torch.from_numpy(np.array(Image.open(path).convert('RGB')))
            for path in paths
        ]
    )
    pixels = (pixels.permute(0, 3, 1, 2) - 127.5) / 63.75
    for name, final_norm in (('avg', True), ('raw', False)):
        model = ImageClassifier(
            MODELS.build(dict(cfg.backbone, final_norm=final_norm)),
            neck=cfg.neck,
        ).eval()
        model.load_state_dict(
            {k.replace('teacher', 'backbone'): v for k, v in state.items()},
            strict=final_norm,
        )
        with torch.no_grad():
            feats[name] = model.extract_feat(pixels)[-1].numpy()
    labels = np.array([int(path.parent.name) for path in paths])
    return feats, labels, [f'{p.parent.name}/{p.name}' for p in paths]


@pytest.mark.parametrize('number', [0, 1])
def test_equals_sklearn(files, report, number):
    result = json.loads((report / 'compare.json').read_text())['results']
    result = result[number]
    assert result['name'] == str(number)
    known, labels, names = _features(files, number, 'train')
    query, truth, _ = _features(files, number, 'val')
    for k in (10, 20):
        judge = KNeighborsClassifier(
            k,
            metric='cosine',
            algorithm='brute',
            weights=lambda dist: np.exp((1 - dist) / 0.07),
        ).fit(known['avg'], labels)
        assert result['knn'][f'k={k}'] == pytest.approx(
            100 * judge.score(query['avg'], truth)
        )

    import make_subset  # beside make_digits

    lists = make_subset.make_subsets(
        files / 'digits' / 'train', report / 'lists', (1, 2, 5), (20,)
    )
    rows = {name: row for row, name in enumerate(names)}

    def normalise(feats):
        feats = feats - feats.mean(1, keepdims=True)
        return feats / np.linalg.norm(feats, axis=1, keepdims=True)

    for place, shots in enumerate((1, 2, 5)):
        accuracies = []
        for path in lists[3 * place : 3 * place + 3]:
            train = [rows[line] for line in path.read_text().split()]
            judge = LogisticRegression(
                C=10, fit_intercept=False, max_iter=300
            ).fit(normalise(known['raw'])[train], labels[train])
            accuracies.append(
                100 * judge.score(normalise(query['raw']), truth)
            )
        found = result['lowshot'][place]
        assert found['subset'] == f'{shots} shot'
        assert found['images_per_class'] == shots
        assert found['top1'] == pytest.approx(accuracies)

    # Random features of digits are separable well above chance.
    assert result['linear']['top1'] > 60


def test_table_and_plot(report, tool):
    lines = (report / 'compare.md').read_text().splitlines()
    heads = [cell.strip() for cell in lines[0].split('|')[1:-1]]
    assert heads[1:4] == ['k-NN, k=10', 'k-NN, k=20', 'linear']
    assert heads[4:] == ['1 shot', '2 shot', '5 shot', '20 %']
    results = json.loads((report / 'compare.json').read_text())['results']
    first = [cell.strip() for cell in lines[2].split('|')[1:-1]]
    assert first[3] == f'{results[0]["linear"]["top1"]:.1f}'
    mean, std = (results[0]['lowshot'][2][name] for name in ('mean', 'std'))
    assert first[6] == f'{mean:.1f} ± {std:.1f}'

    with Image.open(report / 'compare.png') as picture:
        assert min(picture.size) > 300
    axes = tool[0].draw_comparison(results).axes
    assert [ax.get_title('left') for ax in axes] == [
        'low-shot',
        'k-NN',
        'linear probing',
    ]
    lines = [container.lines[0] for container in axes[0].containers]
    for line, result in zip(lines, results):
        points = sorted(
            (subset['images_per_class'], subset['mean'])
            for subset in result['lowshot']
        )
        np.testing.assert_allclose(line.get_xydata(), points)
    heights = [bar.get_height() for bar in axes[2].patches]
    assert heights == [result['linear']['top1'] for result in results]


def test_features_are_extracted_once(tool, files, report, tmp_path):
    cached = {
        path: path.stat().st_mtime_ns
        for path in (report / 'features').iterdir()
    }
    assert len(cached) == 4
    before = json.loads((report / 'compare.json').read_text())['results'][1]
    tool[0].main(
        _arguments(
            files,
            report,
            *('--protocols', 'knn', '--names', 'other'),
            checkpoints=(1,),
        )
    )
    after = json.loads((report / 'compare.json').read_text())['results']
    assert after == [
        dict(name='other', checkpoint=before['checkpoint'], knn=before['knn'])
    ]
    for path, time in cached.items():
        assert path.stat().st_mtime_ns == time
    assert len(list((report / 'features').iterdir())) == 4


@pytest.mark.parametrize(
    'more, message',
    [
        (['--names', 'a'], '1 names for 2 checkpoints'),
        (['--names', 'a', 'a'], 'names .* repeat'),
        (['--config', 'none.py'], 'no config none.py'),
        (['--protocols', 'finetune'], 'invalid choice'),
    ],
)
def test_bad_command_lines(tool, files, tmp_path, capsys, more, message):
    with pytest.raises(SystemExit) as stop:
        tool[0].main(_arguments(files, tmp_path, *more))
    assert stop.value.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_bad_files_are_one_line_and_leave_nothing(tool, files, tmp_path):
    wrong = str(CONFIGS / 'classification' / 'lowshot_vit-b16_in1k.py')
    digits = str(files / 'digits')
    (tmp_path / 'bad.pth').write_bytes(b'no checkpoint')
    for change, message in (
        (['--config', 'classification/knn_vit-b16_in1k.py'], 'does not fit'),
        (['--config', wrong], 'is no k-NN config'),
        (['--data-root', str(tmp_path)], 'no folder'),
        (['--data-root', digits, '--shots', '500'], 'fewer than 500'),
    ):
        arguments = _arguments(files, tmp_path / 'out', *change)
        with pytest.raises(SystemExit, match=message):
            tool[0].main(arguments)
    arguments = _arguments(files, tmp_path / 'out')
    arguments[0] = str(tmp_path / 'bad.pth')
    with pytest.raises(SystemExit, match='bad.pth'):
        tool[0].main(arguments)
    assert not (tmp_path / 'out' / 'compare.json').exists()
