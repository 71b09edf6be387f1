# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rivals train the same encoder, and are measured by the same numbers."""

import copy
import json
import shutil
import sys

import numpy as np
import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, RUNNERS
from sklearn.metrics import average_precision_score, mutual_info_score
from sklearn.neighbors import KNeighborsClassifier
from torch.nn import functional as F

from mmmoca.engine.launch import leave_out_hooks
from projects import trials
from projects.rivals import feature_curve, methods, run, targets
from projects.rivals.centres import CentreVariant
from projects.rivals.feature_curve import FILE, MEASURES, FeatureCurveHook
from projects.rivals.levers import LEVERS
from projects.rivals.methods import OURS, RATES
from projects.rivals.pictures import draw
from projects.rivals.tables import (
    HEAD,
    Run,
    choose,
    table,
    target_table,
)
from projects.rivals.targets import (
    TARGETS,
    codes_of,
    information,
    likeness,
)
from tests.runs import NO_VALIDATION

METHODS = list(RATES)


@pytest.fixture
def configs():
    return {method: methods.config_of(method) for method in METHODS}


def test_configs_are_methods(configs):
    files = (methods.HERE / 'configs').glob('*.py')
    assert {f'{m}_vit-tiny_textures' for m in METHODS} - {
        path.stem for path in files
    } == {'moca_vit-tiny_textures'}
    methods.check_encoders(configs)
    rivals = [rates for method, rates in RATES.items() if method != OURS]
    assert all(len(set(rates)) >= 3 for rates in rivals)


@pytest.mark.parametrize('lever', LEVERS)
def test_lever_changes_the_recipe(lever, configs):
    name = f'{OURS}_{lever}'
    cfg = methods.config_of(name)
    methods.check_encoders({name: cfg})
    assert cfg.to_dict() != configs[OURS].to_dict()
    model = MODELS.build(cfg.model)
    build_optim_wrapper(model, cfg.optim_wrapper)


def test_batch_of_a_method(configs):
    for method, cfg in configs.items():
        other = methods.config_of(f'{method}_batch-48')
        cfg.train_dataloader.batch_size = 48
        assert other.to_dict() == cfg.to_dict()
        assert methods.rates_of(f'{method}_batch-48') == RATES[method]


@pytest.mark.parametrize(
    'wrong',
    [
        *('dino', 'moca_dino', 'mocov3_cls', 'moca_batch-64_cls'),
        *('moca_batch-', 'moca_batch-0', 'moca_batch-1.5'),
    ],
)
def test_unknown_method(wrong):
    with pytest.raises(ValueError, match=f'^{wrong}: there is no such'):
        methods.parts_of(wrong)


def test_levers_go_together():
    cfg = methods.config_of('moca_gentle_solarize_batch-48')
    assert cfg.model.image_embedding == 'cls'
    assert cfg.train_dataloader.batch_size == 48
    views = cfg.train_dataloader.dataset.pipeline[2].transforms
    rival = methods.config_of('mocov3').train_dataloader.dataset.pipeline[2]
    assert views[1][3].transforms == rival.transforms[1][3:]
    assert views[0] == rival.transforms[0]
    assert views[1][:3] == rival.transforms[1][:3]


def test_another_encoder(configs):
    configs['mae'].model.backbone.arch.num_layers = 3
    with pytest.raises(ValueError, match=r'mae: .* layers\.3.*is None'):
        methods.check_encoders(configs)


def test_no_labels(root, tmp_path):
    assert run.check_images(root) == root
    for names in ((), ('train/a', 'val/a'), ('train/a', 'train/b', 'val/a')):
        folder = tmp_path / str(len(names))
        folder.mkdir()
        for name in names:
            (folder / name).mkdir(parents=True)
        with pytest.raises(ValueError, match='has no labels: .* val/<class>'):
            run.check_images(folder)


def test_errors_come_before_training(root, tmp_path, monkeypatch):
    (tmp_path / 'digits').symlink_to(root / 'train')
    monkeypatch.setattr(
        sys, 'argv', ['run', str(tmp_path), '--sets', 'digits']
    )
    with pytest.raises(SystemExit, match='error: .*/digits has no labels'):
        run.main()
    assert not (tmp_path / 'configs').exists()


def runner_of(root, tmp_path, method, steps, **options):
    """A method on the tests' images, measured after every step."""
    configs = {method: methods.config_of(method)}
    methods.write_configs(configs, dict(small=root), tmp_path)
    cfg = configs[method]
    cfg.merge_from_dict(
        {
            'work_dir': str(tmp_path / 'work'),
            'experiment_name': f'{method}_{steps}_{len(options)}',
            'train_dataloader.batch_size': 16,
            'train_cfg.max_iters': steps,
            'default_hooks.checkpoint.interval': 1,
            'default_hooks.checkpoint.max_keep_ckpts': -1,
            'default_hooks.features.k': 3,
            'log_level': 'ERROR',
            **NO_VALIDATION,
            **options,
        }
    )
    leave_out_hooks(cfg)
    return RUNNERS.build(cfg)


@pytest.mark.parametrize('method', METHODS)
def test_method_trains_and_is_measured(root, tmp_path, method):
    runner = runner_of(root, tmp_path, method, 2)
    before = copy.deepcopy(runner.model.state_dict())
    runner.train()
    after = runner.model.state_dict()
    moved = {key for key in after if not torch.equal(before[key], after[key])}
    encoder = 'teacher' if method == OURS else 'backbone'
    assert any(key.startswith(f'{encoder}.layers') for key in moved)

    first, second = curve = json.loads((tmp_path / 'work' / FILE).read_text())
    assert [row['step'] for row in curve] == [1, 2]
    assert 0 < first['seconds'] < second['seconds']
    # k-NN again, by the model's own encoder and scikit-learn.
    for feature in ('avg', 'cls'):
        bank, queries = (
            features_of(runner, root / split, feature)
            for split in ('train', 'val')
        )
        nearest = KNeighborsClassifier(3, weights=vote).fit(*bank)
        accuracy = 100 * nearest.score(*(part[1::2] for part in queries))
        assert second['report'][f'knn_{feature}'] == pytest.approx(accuracy)
        for part in ('choose', 'report'):
            for measure in MEASURES:
                assert 0 <= second[part][f'{measure}_{feature}'] <= 100
    assert list(second.get('targets', ())) == list(
        TARGETS if method == OURS else ()
    )


def vote(distances):
    """Weights of unit vectors that are so far apart."""
    return np.exp((1 - distances**2 / 2) / 0.07)


@torch.no_grad()
def features_of(runner, folder, feature):
    """What the model makes of whole images, without any other encoder."""
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


def test_lambda_schedule(root, tmp_path):
    runner = runner_of(
        *(root, tmp_path, OURS, 3),
        **{
            **LEVERS['lambda-0.5-to-0.9'],
            'default_hooks.features.interval': 9,
        },
    )
    used = []
    loss = runner.model.head.loss

    def note(*args):
        used.append(runner.model.head.lambda_img)
        return loss(*args)

    runner.model.head.loss = note
    runner.train()
    assert used == pytest.approx([0.5, 0.7, 0.9])


def test_a_run_that_was_stopped(root, tmp_path):
    """After step 3, which had not been measured."""
    options = {'default_hooks.features.interval': 2}
    runner_of(root, tmp_path, 'mae', 4, **options).train()
    first, second = json.loads((tmp_path / 'work' / FILE).read_text())
    (tmp_path / 'work' / FILE).unlink()
    stopped = tmp_path / 'work' / 'iter_3.pth'
    resumed = runner_of(
        *(root, tmp_path, 'mae', 4),
        resume=True,
        load_from=str(stopped),
        **options,
    )
    resumed.train()
    again = json.loads((tmp_path / 'work' / FILE).read_text())
    assert again[0] == first
    assert again[1]['report'] == second['report']
    hub = torch.load(stopped, weights_only=False)['message_hub']
    so_far = hub['runtime_info']['seconds_of_training']
    assert first['seconds'] < so_far < again[1]['seconds']


def test_measuring_leaves_the_run_alone(root, tmp_path):
    runner = runner_of(root, tmp_path, 'mae', 1)
    (hook,) = (h for h in runner.hooks if isinstance(h, FeatureCurveHook))
    state = torch.get_rng_state()
    values = hook.measure(runner.model)
    assert torch.equal(torch.get_rng_state(), state)
    assert values == hook.measure(runner.model)
    for feature, accuracy in hook.accuracies(runner.model).items():
        assert accuracy == values['report'][f'knn_{feature}']


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


def test_accuracy_of_pixels(root, tmp_path):
    runner = runner_of(root, tmp_path, 'mae', 1)
    (hook,) = (h for h in runner.hooks if isinstance(h, FeatureCurveHook))
    known, asked = (
        zip(
            *(
                (item['inputs'].flatten().numpy(), item['data_samples'])
                for item in hook.sets[split]
            )
        )
        for split in ('train', 'val')
    )
    (known, labels), (asked, truth) = (
        (np.stack(x).astype(float), [int(s.gt_label) for s in samples])
        for x, samples in (known, asked)
    )
    known, asked = (x - x.mean(1, keepdims=True) for x in (known, asked))
    known, asked = (
        x / np.linalg.norm(x, axis=1, keepdims=True) for x in (known, asked)
    )
    nearest = KNeighborsClassifier(hook.k, weights=vote).fit(known, labels)
    expected = 100 * nearest.score(asked[1::2], truth[1::2])
    assert hook.accuracy_of_pixels() == pytest.approx(expected)


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
    ours = feature_curve.mean_average_precision(similarity, truth, labels)
    assert ours == pytest.approx(100 * expected)


def test_what_targets_tell():
    """Words that follow the image, the position, its class, or nothing."""
    labels = torch.tensor([0, 0, 1, 1, 1, 1])
    rows, columns = torch.arange(6)[:, None], torch.arange(5)[None]
    expected = {
        'image': (rows.expand(6, 5), (6, 0), 6),
        'position': (columns.expand(6, 5), (0, 5), 5),
        'nothing': (torch.zeros(6, 5).long(), (0, 0), 1),
    }
    for words, (image, position), perplexity in expected.values():
        codes = F.one_hot(words, 7).float()
        found = information(codes, labels)
        told = [np.log(max(1, number)) for number in (image, position)]
        assert found['image'] == pytest.approx(told[0], abs=1e-5)
        assert found['position'] == pytest.approx(told[1], abs=1e-5)
        assert found['perplexity'] == pytest.approx(perplexity)
    # A word for each class: scikit-learn counts one token of each image.
    codes = F.one_hot(labels[:, None], 7).float()
    told = mutual_info_score(labels, labels)
    assert information(codes, labels)['class'] == pytest.approx(told)


def test_words_alike():
    words = F.normalize(torch.randn(5, 3), dim=1)
    pairs = (words @ words.T)[~torch.eye(5, dtype=bool)]
    assert likeness(words) == pytest.approx(pairs.mean().item(), rel=1e-4)


def test_targets_as_features(configs):
    """Similarities are sums of roots of products of frequencies."""
    model = MODELS.build(configs[OURS].model)
    images = torch.randn(3, 3, 48, 48)
    codes = codes_of(model, images)
    expected = model.codebook.assign(model.encode_teacher(images)).codes()
    torch.testing.assert_close(codes, expected)
    inner = [row * 6 + column for row in range(1, 5) for column in range(1, 5)]
    bags = codes[:, inner].mean(dim=1)
    expected = dict(
        bag=(bags[:, None] * bags[None]).sqrt().sum(dim=-1),
        places=(codes[:, None] * codes[None]).sqrt().sum(dim=-1).mean(dim=-1),
    )
    found = targets.features_of(codes, model.codebook.inner)
    for name, vectors in found.items():
        similarity = vectors @ vectors.T
        torch.testing.assert_close(similarity, expected.pop(name))
    assert not expected


def curve_of(avg, cls):
    """One point; what is reported is 5 less."""

    def values(less):
        knn = dict(knn_avg=avg - less, knn_cls=cls - less)
        others = {
            f'{measure}_{feature}': knn[f'knn_{feature}'] / 2
            for measure in MEASURES[1:]
            for feature in ('avg', 'cls')
        }
        return knn | others

    row = dict(step=9, seconds=4.4, choose=values(0), report=values(5))
    return [dict(row, step=4, seconds=2.0), row]


def test_mean_and_deviation():
    assert trials.mean_and_deviation([2.0]) == '2.0'
    assert trials.mean_and_deviation([1.0, 3.0], digits=2) == '2.00 ± 1.41'


def test_choice_and_table():
    curves = {
        Run('small', 'moca', None, 0): curve_of(70, 60),
        Run('small', 'moca', None, 1): curve_of(74, 60),
        **{
            Run('small', 'mae', rate, seed): curve_of(20, 50 - i + seed)
            for i, rate in enumerate(RATES['mae'])
            for seed in range(2)
        },
    }
    chosen = choose({r: c for r, c in curves.items() if r.seed == 0})
    assert chosen == dict(moca=(None, 'avg'), mae=(RATES['mae'][0], 'cls'))
    rows = list(table(curves, dict(moca='avg', mae='cls')))
    assert len(rows) == 1 + len(RATES['mae'])
    assert dict(zip(HEAD, rows[0])) == {
        'method': 'moca',
        'rate': "the recipe's",
        'feature': 'avg',
        'steps': '9',
        'seconds': '4',
        'k-NN avg': '67.0 ± 2.8',
        'k-NN cls': '55.0 ± 0.0',
        'linear': '33.5 ± 1.4',
        'mAP': '33.5 ± 1.4',
    }
    assert not target_table(curves)
    for curve in curves.values():
        curve[-1]['targets'] = dict.fromkeys(TARGETS, 1.25)
    assert target_table(curves)[0] == (
        'moca',
        *['1.25 ± 0.00'] * len(TARGETS),
    )
    picture = draw(
        dict(moca=list(curves.values())[:2]), dict(moca='avg'), 'small'
    )
    lines = [axis.get_lines()[0] for axis in picture.axes[:2]]
    assert [line.get_xdata().tolist() for line in lines] == [[4, 9], [2, 4.4]]
    assert all(line.get_ydata().tolist() == [67, 67] for line in lines)


@pytest.mark.slow
@pytest.mark.processes
def test_command(root, tmp_path, monkeypatch, capsys):
    """Two methods in the same seconds, chosen on one set, and on another."""
    monkeypatch.setattr(run, 'SETS', ('one', 'two'))
    monkeypatch.setitem(methods.RATES, 'mae', (1e-3, 1e-2))
    monkeypatch.setattr(run, 'PACE_STEPS', 4)
    monkeypatch.setattr(run, 'RESULTS', tmp_path / 'results.jsonl')
    for name in ('one', 'two'):
        (tmp_path / name).symlink_to(root)
    command = ['run', tmp_path, '--seeds', 1, '--seconds', 1, '--jobs', 2]
    command += ['--methods', 'moca', 'mae', '--sets', 'one', 'two']
    monkeypatch.setattr(sys, 'argv', [*map(str, command)])
    run.main()
    printed = capsys.readouterr().out
    for name, rows in (('one', 3), ('two', 2)):
        table = printed.split(f'\n{name}\n\n')[1].split('\n\n')[0]
        assert len(table.splitlines()) == 2 + rows
        assert (tmp_path / f'{name}.png').stat().st_size > 10_000
    monkeypatch.setattr(trials, 'tool', None)  # nothing is trained again
    for folder in tmp_path.glob('*_lr_*_steps_*'):
        shutil.rmtree(folder)  # the rows are enough
    run.main()
    assert printed.endswith(capsys.readouterr().out[-500:])


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--methods', 'moca', 'dino'], '--methods: dino: there is no such'),
        (['--methods', 'mae_batch-few'], 'mae_batch-few: there is no such'),
        (['--sets', 'faces'], '--sets faces: there is no such one; there are'),
        (['--seeds', '0'], '--seeds must be 1 or more'),
    ],
)
def test_bad_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['run', str(tmp_path), *arguments])
    with pytest.raises(SystemExit):
        run.main()
    assert message in capsys.readouterr().err
