# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Comparing checkpoints on scikit-learn's digits."""

import json
from argparse import ArgumentTypeError
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmpretrain.models import ImageClassifier
from mmpretrain.registry import MODELS
from PIL import Image

from mmmoca.checkpoints import convert_to_timm_name
from mmmoca.evaluation import presets
from tests.images import CONFIGS
from tests.judges import centre, knn_judge, low_shot_judge
from tests.tools import load_tool

CONFIG = CONFIGS / 'demo' / 'knn_vit-tiny_textures.py'


@pytest.fixture(scope='module')
def tool():
    return load_tool('analysis_tools/compare')


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """200 digits, and two random backbones, also as MSN's and MoCo-v3's."""
    root = tmp_path_factory.mktemp('compare')
    make_digits = load_tool('dataset_converters/make_digits').make_digits
    make_digits(root / 'digits', limit=200)
    model = Config.fromfile(CONFIG).model
    timm = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        backbone = MODELS.build(model.backbone)
        backbone.init_weights()
        state = {
            f'teacher.{name}': value + 0.1 * torch.randn_like(value)
            for name, value in backbone.state_dict().items()
        }
        torch.save(dict(state_dict=state), root / f'{seed}.pth')
        timm.append(
            {
                convert_to_timm_name(name.removeprefix('teacher.')): value
                for name, value in state.items()
            }
        )
    teacher, student = timm
    msn = dict(target_encoder=teacher, encoder=student)
    torch.save(msn, root / 'msn.pth.tar')
    moco = {f'module.momentum_encoder.{k}': v for k, v in teacher.items()} | {
        f'module.base_encoder.{k}': v for k, v in student.items()
    }
    torch.save(dict(state_dict=moco), root / 'mocov3.pth.tar')
    return root


def _arguments(files, out, *more, checkpoints=('0.pth', '1.pth')):
    return [
        *(str(files / name) for name in checkpoints),
        *('--data-root', str(files / 'digits'), '--config', str(CONFIG)),
        *('--out-dir', str(out), '--epochs', '30', '--batch-size', '32'),
        *('--percent', '20', '--num-workers', '0', *more),
    ]


@pytest.fixture(scope='module')
def report(tool, files, tmp_path_factory):
    out = tmp_path_factory.mktemp('out') / 'a'
    arguments = _arguments(files, out)
    arguments.insert(2, f'MSN={files / "msn.pth.tar"}')
    tool.main(arguments)
    return out


def results_of(folder):
    return json.loads((folder / 'compare.json').read_text())['results']


def _features(files, number, split):
    """[CLS] and mean patch token, with and without the final norm."""
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
    for name, out, neck in (
        ('avg', 'featmap', cfg.neck),
        ('cls', 'cls_token', None),
    ):
        for norm in (True, False):
            backbone = dict(cfg.backbone, final_norm=norm, out_type=out)
            model = ImageClassifier(MODELS.build(backbone), neck).eval()
            model.load_state_dict(
                {k.replace('teacher', 'backbone'): state[k] for k in state},
                strict=norm,
            )
            with torch.no_grad():
                feats[name, norm] = model.extract_feat(pixels)[-1].numpy()
    labels = np.array([int(path.parent.name) for path in paths])
    return feats, labels, [f'{p.parent.name}/{p.name}' for p in paths]


# As published: MOCA's k-NN and lambda are those of the authors' code, MSN
# takes [CLS], in low-shot with the lambda of its own code.
@pytest.mark.parametrize(
    'row, number, token, temperature, regularization',
    [
        (0, 0, 'avg', 0.04, 0.1),
        (1, 1, 'avg', 0.04, 0.1),
        (2, 0, 'cls', 0.07, 0.0025),
    ],
)
def test_equals_sklearn(
    files, report, row, number, token, temperature, regularization
):
    result = results_of(report)[row]
    assert result['name'] == ('0', '1', 'MSN')[row]
    known, labels, names = _features(files, number, 'train')
    query, truth, _ = _features(files, number, 'val')
    for k in (10, 20):
        judge = knn_judge(known[token, True], labels, k, temperature)
        assert result['knn'][f'k={k}'] == pytest.approx(
            100 * judge.score(query[token, True], truth)
        )

    make_subset = load_tool('dataset_converters/make_subset')
    lists = make_subset.make_subsets(
        files / 'digits' / 'train', report / 'lists', (1, 2, 5), (20,)
    )
    rows = {name: row for row, name in enumerate(names)}
    before, queries = (centre(f[token, False]) for f in (known, query))
    for place, shots in enumerate((1, 2, 5)):
        accuracies = []
        for path in lists[3 * place : 3 * place + 3]:
            train = [rows[line] for line in path.read_text().split()]
            judge = low_shot_judge(
                before[train], labels[train], regularization
            )
            accuracies.append(100 * judge.score(queries, truth))
        found = result['lowshot'][place]
        assert found['subset'] == f'{shots} shot'
        assert found['images'] == [10 * shots] * 3
        # Of 50 images one may lie between two classes.
        assert found['top1'] == pytest.approx(accuracies, abs=2.01)

    # Random features of digits are separable well above chance.
    assert result['linear']['top1'] > 60


def test_table(report):
    lines = (report / 'compare.md').read_text().splitlines()
    heads = [cell.strip() for cell in lines[0].split('|')[2:-1]]
    assert heads == [
        *('k-NN, k=10', 'k-NN, k=20', 'linear'),
        *('1 shot', '2 shot', '5 shot', '20 %'),
    ]
    first = [cell.strip() for cell in lines[2].split('|')[1:-1]]
    result = results_of(report)[0]
    assert first[3] == f'{result["linear"]["top1"]:.1f}'
    subset = result['lowshot'][2]
    assert first[6] == f'{subset["mean"]:.1f} ± {subset["std"]:.1f}'
    assert lines[-1].startswith('- MSN: teacher encoder; k-NN cls (T = 0.07)')


def test_normalised_as_mmpretrain_configs_say(tool, files, report, tmp_path):
    """By a ``data_preprocessor`` that stands beside the model."""
    cfg = Config.fromfile(CONFIG)
    cfg.data_preprocessor = cfg.model.pop('data_preprocessor')
    cfg.dump(tmp_path / 'knn.py')
    options = ('--protocols', 'knn', '--config', str(tmp_path / 'knn.py'))
    tool.main(_arguments(files, tmp_path, *options, checkpoints=['1.pth']))
    (result,) = results_of(tmp_path)
    assert result['knn'] == results_of(report)[1]['knn']


def test_features_are_extracted_once(tool, files, report):
    cached = {
        path: path.stat().st_mtime_ns
        for path in (report / 'features').iterdir()
    }
    before = results_of(report)[1]
    options = ('--protocols', 'knn')
    entry = f'other={files}/1.pth'
    tool.main([entry, *_arguments(files, report, *options, checkpoints=[])])
    (after,) = results_of(report)
    kept = ('checkpoint', 'settings', 'knn')
    assert after == dict(name='other') | {name: before[name] for name in kept}
    assert set(cached) == set((report / 'features').iterdir())
    for path, time in cached.items():
        assert path.stat().st_mtime_ns == time


def test_a_feature_for_all_protocols(tool, files, tmp_path):
    """The same file by two features, both from the cache of its weights."""
    options = '--protocols', 'knn', 'lowshot', '--shots', '2'
    arguments = _arguments(files, tmp_path, *options, checkpoints=())
    path, of_cls = files / '0.pth', tmp_path / 'of_cls.pth'
    record = dict(mmmoca=dict(feature='cls'))
    torch.save(torch.load(path) | dict(meta=record), of_cls)
    pair = f'{path}:cls-avg'
    tool.main([f'cls={path}:cls', f'both={pair}', pair, *arguments])
    cls, both, again = results_of(tmp_path)
    assert both['settings']['knn'] == 'cls-avg' and both['knn'] == again['knn']
    assert cls['settings']['knn'] == 'cls'
    assert cls['lowshot'] != both['lowshot']
    tool.main([str(of_cls), *arguments])
    (recorded,) = results_of(tmp_path)
    assert recorded['knn'] == cls['knn']
    assert len(list((tmp_path / 'features').glob('*.npy'))) == 2


def test_checkpoints_on_the_command_line(tool, tmp_path):
    folder = tmp_path / 'lr=1e-4:b'
    folder.mkdir()
    path = str(folder / 'a.pth')
    Path(path).touch()
    for text, expected in (
        (path, (None, path, None)),
        (f'{path}:cls', (None, path, 'cls')),
        (f'A b={path}:msn', ('A b', path, 'msn')),
    ):
        assert tool.parse_entry(text) == expected
    for text in (f'A=B={path}', f'{path}:dense', f'{path}x'):
        with pytest.raises(ArgumentTypeError, match='no f(ile|eature)'):
            tool.parse_entry(text)
    Path(f'{path}:cls').touch()  # a file of that very name comes first
    assert tool.parse_entry(f'{path}:cls').feature is None
    assert tool.FEATURES == presets.FEATURES
    assert tuple(presets.PRESETS) == tool.PRESETS


def test_the_encoder_that_is_published(tool, files, tmp_path):
    """MoCo-v3 evaluates its student, all others their teacher."""
    arguments = _arguments(
        *(files, tmp_path, '--protocols', 'knn'),
        checkpoints=('mocov3.pth.tar', '1.pth:msn'),
    )
    tool.main(arguments)
    report = results_of(tmp_path)
    assert [r['settings']['which'] for r in report] == ['student', 'teacher']
    assert report[0]['knn'] == report[1]['knn']  # that of the same weights
    tool.main([*arguments, '--which', 'teacher'])
    report = results_of(tmp_path)
    assert report[0]['settings']['which'] == 'teacher'
    assert report[0]['knn'] != report[1]['knn']


def test_bad_command_lines(tool, files, tmp_path, capsys):
    for options, message in (
        (['--epochs', '0'], '--epochs'),
        (['--sets', '1.5'], '--sets'),
        (['--shots', '--percent'], '--shots'),
    ):
        with pytest.raises(SystemExit, match='2'):
            tool.main(_arguments(files, tmp_path, *options))
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match='2'):
        tool.main(_arguments(files, tmp_path, checkpoints=['0.pth'] * 2))
    assert 'repeat' in capsys.readouterr().err


def test_bad_files_are_one_line_and_leave_nothing(tool, files, tmp_path):
    no_norm = torch.load(files / '0.pth')
    for name in ('weight', 'bias'):
        del no_norm['state_dict'][f'teacher.ln1.{name}']
    torch.save(no_norm, tmp_path / 'no_norm.pth')
    (tmp_path / 'bad.pth').write_bytes(b'no checkpoint')
    for checkpoint, change, message in (
        ('0.pth', ['--data-root', str(tmp_path)], 'no file or folder'),
        (tmp_path / 'no_norm.pth', [], 'no_norm.pth.* no final norm'),
        (tmp_path / 'bad.pth', [], 'bad.pth'),
    ):
        arguments = _arguments(
            files, tmp_path / 'out', *change, checkpoints=(checkpoint,)
        )
        with pytest.raises(SystemExit, match=message):
            tool.main(arguments)
    assert not (tmp_path / 'out' / 'compare.json').exists()
