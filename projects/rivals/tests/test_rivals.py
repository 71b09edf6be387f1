# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rivals train the same encoder, and are measured by the same numbers."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import (
    DATASETS,
    MODELS,
    RUNNERS,
    init_default_scope,
)
from PIL import Image
from sklearn.metrics import average_precision_score
from sklearn.neighbors import KNeighborsClassifier
from torch.nn import functional as F

from mmmoca.checkpoints import read_checkpoint
from mmmoca.models.transformer import attention
from projects import trials
from projects.rivals import run
from projects.rivals.centres import CentreVariant
from projects.rivals.measure import (
    MEASURES,
    mean_average_precision,
    measure,
    pixel_accuracy,
)
from projects.rivals.pictures import draw
from projects.rivals.run import CONFIGS, HEAD, Run, choose, table
from tests.runs import NO_VALIDATION


def test_all_train_one_encoder():
    shapes = []
    for file in CONFIGS.values():
        cfg = Config.fromfile(file)
        init_default_scope(cfg.default_scope)
        backbone = dict(cfg.model.backbone)
        backbone.pop('mask_ratio', None)
        weights = MODELS.build(backbone).state_dict()
        shapes.append({k: tuple(v.shape) for k, v in weights.items()})
    assert all(found == shapes[0] for found in shapes)


def runner_of(root, tmp_path, method, **options):
    """Two steps of a method on the tests' images, with checkpoints."""
    cfg = Config.fromfile(CONFIGS[method])
    cfg.merge_from_dict(
        {
            'work_dir': str(tmp_path / 'work'),
            'experiment_name': f'{method}_{len(options)}',
            'train_dataloader.batch_size': 16,
            'train_dataloader.dataset.data_root': str(root),
            'train_cfg.max_iters': 2,
            'default_hooks.checkpoint.interval': 1,
            'default_hooks.logger.interval': 1,
            'log_level': 'ERROR',
            **NO_VALIDATION,
            **options,
        }
    )
    for name in ('codebook', 'teacher_ema'):
        if cfg.default_hooks[name] is None:
            del cfg.default_hooks[name]
    return RUNNERS.build(cfg)


def vote(distances):
    """Weights of unit vectors that are so far apart."""
    return np.exp((1 - distances**2 / 2) / 0.07)


@torch.no_grad()
def features_of(runner, folder, feature):
    """Unit features and labels of whole images, by the model's own encoder."""
    dataset = DATASETS.build(
        dict(
            type='CustomDataset',
            data_root=str(folder),
            pipeline=runner.cfg.test_pipeline,
        )
    )
    images = torch.stack([item['inputs'] for item in dataset])
    model = runner.model.eval()
    inputs = model.data_preprocessor(dict(inputs=images))['inputs']
    if hasattr(model, 'teacher'):
        vectors = getattr(model.teacher.encode(inputs), feature)
    else:
        model.backbone.out_type = 'raw'
        masked = dict(mask=None) if 'MAE' in type(model).__name__ else {}
        (tokens,) = model.backbone(inputs, **masked)
        kind = slice(1) if feature == 'cls' else slice(1, None)
        vectors = tokens[:, kind].mean(dim=1)
    return F.normalize(vectors, dim=1).numpy(), dataset.get_gt_labels()


@pytest.mark.slow
@pytest.mark.parametrize('method', CONFIGS)
def test_method_trains_and_is_measured(root, tmp_path, method):
    runner = runner_of(root, tmp_path, method)
    runner.train()
    first, second = (
        measure(tmp_path / 'work' / f'iter_{i}.pth', root) for i in (1, 2)
    )
    assert (first['step'], second['step']) == (1, 2)
    assert 0 <= first['seconds'] <= second['seconds']
    assert (second['image_information'] is None) == (method != 'moca')
    # k-NN again, by the model's own encoder and scikit-learn.
    for feature in ('avg', 'cls'):
        bank, (asked, truth) = (
            features_of(runner, root / split, feature)
            for split in ('train', 'val')
        )
        nearest = KNeighborsClassifier(20, weights=vote).fit(*bank)
        for start, part in enumerate(('choose', 'report')):
            found = second[part][feature]
            expected = 100 * nearest.score(asked[start::2], truth[start::2])
            assert found['k-NN'] == pytest.approx(expected, abs=0.01)
            assert all(0 <= found[name] <= 100 for name in MEASURES)


def test_rivals_have_what_moca_has(root, tmp_path):
    """A teacher that may end at the student, and the faster attention."""
    options = {'model.base_momentum': 0.5, 'default_hooks.rival.end': 1.0}
    runner = runner_of(root, tmp_path, 'byol', **options)
    model = runner.model
    runner.train()
    layers = [*model.backbone.layers, *model.target_net.module[0].layers]
    assert len(layers) == 8
    for layer in layers:
        assert layer.attn.scaled_dot_product_attention is attention
    # Half a cosine from 1 / 2 to 1; the first update is a copy.
    start, second = (
        read_checkpoint(tmp_path / 'work' / f'iter_{i}.pth')['state_dict']
        for i in (1, 2)
    )
    for name in ('0.ln1.weight', '1.fc0.weight'):
        part, own = name.split('.', 1)
        student = f'{"neck" if int(part) else "backbone"}.{own}'
        teacher = f'target_net.module.{name}'
        expected = start[teacher].lerp(start[student], 0.75)
        torch.testing.assert_close(second[teacher], expected)


def test_seconds_of_a_run_that_was_stopped(root, tmp_path):
    runner_of(root, tmp_path, 'mae').train()
    checkpoints = [tmp_path / 'work' / f'iter_{i}.pth' for i in (1, 2)]
    seconds = [read_checkpoint(c)['meta']['cpu_seconds'] for c in checkpoints]
    checkpoints[1].unlink()
    options = dict(resume=True, load_from=str(checkpoints[0]))
    runner_of(root, tmp_path, 'mae', **options).train()
    again = read_checkpoint(checkpoints[1])['meta']['cpu_seconds']
    assert seconds[0] < min(seconds[1], again)


@pytest.mark.parametrize('use', ['both', 'words', 'assignments'])
@pytest.mark.parametrize('mean', ['position', 'all', 'batch'])
def test_centres(mean, use):
    """What is subtracted, and from what."""
    torch.manual_seed(0)
    codebook = CentreVariant(
        **dict(embed_dims=6, patch_resolution=(3, 3), num_words=8, border=1),
        **dict(num_new_words=4, centre=0.9, mean=mean, use=use),
    )
    codebook.token_mean.normal_()
    tokens = torch.randn(8, 9, 6)
    means = dict(
        position=codebook.token_mean,
        all=codebook.token_mean.mean(dim=0, keepdim=True),
        batch=tokens.mean(dim=0),
    )
    assigned, drawn = (
        tokens - means[mean] if use in ('both', name) else tokens
        for name in ('assignments', 'words')
    )
    assert torch.equal(codebook.assign(tokens).tokens, assigned)
    # One patch is within the border.
    inner = F.normalize(drawn[:, 4], dim=1).unflatten(0, (2, -1))
    candidates = codebook.draw_candidates(tokens)
    found = torch.cdist(candidates, inner).argmin(dim=-1)
    expected = torch.stack([inner[i, rows] for i, rows in enumerate(found)])
    torch.testing.assert_close(candidates, expected)


def test_accuracy_of_pixels(root):
    vectors, labels = [], []
    for split in ('train', 'val'):
        paths = sorted((root / split).glob('*/*'))
        rows = [np.array(Image.open(p), float).ravel() for p in paths]
        rows = np.stack([row - row.mean() for row in rows])
        vectors.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        labels.append([path.parent.name for path in paths])
    nearest = KNeighborsClassifier(20, weights=vote)
    nearest.fit(vectors[0], labels[0])
    expected = 100 * nearest.score(vectors[1][1::2], labels[1][1::2])
    assert pixel_accuracy(root) == pytest.approx(expected)


def test_mean_average_precision():
    generator = torch.Generator().manual_seed(0)
    similarity = torch.randn(7, 40, generator=generator)
    labels = torch.arange(40) % 3
    truth = torch.arange(7) % 3
    expected = np.mean(
        [
            average_precision_score(labels == label, row)
            for row, label in zip(similarity, truth)
        ]
    )
    ours = mean_average_precision(similarity, truth, labels)
    assert ours == pytest.approx(100 * expected)


def curve_of(avg, cls):
    """Two measurements; what is reported is 5 less."""

    def values(less):
        return {
            feature: dict.fromkeys(MEASURES, knn - less) | {'k-NN': knn - less}
            for feature, knn in (('avg', avg), ('cls', cls))
        }

    end = dict(
        step=9,
        seconds=4.4,
        image_information=None,
        choose=values(0),
        report=values(5),
    )
    return [dict(end, step=4, seconds=2.0), end]


def test_choice_and_table():
    curves = {
        Run('small', 'moca', 0, 9): curve_of(70, 60),
        Run('small', 'moca', 1, 9): curve_of(74, 60),
        Run('small', 'mae', 0, 9): curve_of(20, 50),
        Run('small', 'mae lr=1', 0, 9): curve_of(20, 55),
    }
    chosen = choose({r: c for r, c in curves.items() if r.seed == 0})
    assert chosen == dict(moca=('moca', 'avg'), mae=('mae lr=1', 'cls'))
    features = dict.fromkeys(('moca', 'mae', 'mae lr=1'), 'avg')
    rows = [dict(zip(HEAD, row)) for row in table(curves, features)]
    assert [row['method'] for row in rows] == ['moca', 'mae', 'mae lr=1']
    assert rows[0]['k-NN'] == '67.0 ± 2.8' and rows[0]['seconds'] == '4'
    seeds = dict(moca=list(curves.values())[:2])
    picture = draw(dict(small=seeds), dict(moca='avg'))
    (line,) = picture.axes[0].get_lines()
    assert line.get_xdata().tolist() == [2, 4.4]
    assert line.get_ydata().tolist() == [67, 67]


@pytest.mark.slow
@pytest.mark.processes
def test_command(root, tmp_path, monkeypatch, capsys):
    """Settings are chosen on one set, and trained on another."""
    monkeypatch.setattr(run, 'SETS', dict(one=[''], two=['']))
    monkeypatch.setattr(run, 'PACE_STEPS', 4)
    monkeypatch.setattr(run, 'RESULTS', tmp_path / 'results.jsonl')
    for name in ('one', 'two'):
        (tmp_path / name).symlink_to(root)
    command = ['run', tmp_path, '--seeds', 1, '--seconds', 1, '--jobs', 2]
    command += ['--sets', 'one', 'two', '--methods', 'moca']
    command += ['mae', 'mae optim_wrapper.optimizer.lr=1e-2']
    monkeypatch.setattr(sys, 'argv', [*map(str, command)])
    run.main()
    printed = capsys.readouterr().out
    rows = [json.loads(x)['run'] for x in run.RESULTS.open()]
    assert [row[0] for row in rows].count('one') == 3
    assert [row[0] for row in rows].count('two') == 2
    assert (tmp_path / 'curves.png').stat().st_size > 10_000
    monkeypatch.setattr(trials, 'tool', None)  # nothing is trained again
    for folder in tmp_path.glob('two_*'):
        shutil.rmtree(folder)  # the rows are enough
    run.main()
    assert printed.endswith(capsys.readouterr().out[-300:])


@pytest.mark.parametrize(
    ('arguments', 'word'),
    [
        (['--methods', 'moca', 'dino'], 'dino'),
        (['--methods', 'mae batch-few'], 'mae batch-few'),
        (['--sets', 'faces'], 'faces'),
        (['--seeds', '0'], '--seeds'),
    ],
)
def test_bad_arguments(arguments, word, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['run', str(tmp_path), *arguments])
    with pytest.raises(SystemExit):
        run.main()
    assert word in capsys.readouterr().err
