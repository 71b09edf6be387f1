# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The k-NN loops in real Runners, on image folders, on 1 to 3 processes."""

import itertools
import random

import numpy as np
import pytest
import torch

from tests.distributed import run_processes
from tests.frozen import (
    PIPELINE,
    PooledPixels,
    described,
    draw,
    folder_loader,
    toy_runner,
)
from tests.judges import knn_judge


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """17 bank and 13 query images of 6 classes: 2 and 3 divide neither."""
    root = tmp_path_factory.mktemp('images')
    draw(root / 'bank', (5, 1, 4, 2, 3, 2), 0)
    draw(root / 'query', (2, 3, 1, 3, 2, 2), 1)
    return root


def config(root, work_dir, bank=None, query=None, stage='val', **loop):
    loop_cfg = dict(
        type=f'mmmoca.KNN{stage.capitalize()}Loop',
        bank_dataloader=bank or folder_loader(root / 'bank'),
    )
    return {
        'work_dir': str(work_dir),
        f'{stage}_dataloader': query or folder_loader(root / 'query'),
        f'{stage}_evaluator': dict(type='mmmoca.KNNAccuracy'),
        f'{stage}_cfg': loop_cfg | loop,
    }


def val(root, work_dir, **kwargs):
    return toy_runner(**config(root, work_dir, **kwargs)).val()


def expected_accuracy(root, k, temperature=0.07, which='teacher'):
    """Top-1 of scikit-learn on features that are extracted one by one."""
    _, *bank = described(root / 'bank', which)
    _, *query = described(root / 'query', which)
    return 100 * knn_judge(*bank, k, temperature).score(*query)


def test_val_equals_sklearn(root, tmp_path):
    metrics = val(root, tmp_path, k=(1, 3, 17))
    assert list(metrics) == [
        f'knn/top{top}_k{k}' for top in (1, 5) for k in (1, 3, 17)
    ]
    for k in (1, 3, 17):
        expected = expected_accuracy(root, k)
        assert 0 < expected < 100
        assert metrics[f'knn/top1_k{k}'] == pytest.approx(expected)
    # One neighbour votes for one class: the other four of the top five do
    # not count.
    assert metrics['knn/top5_k1'] == metrics['knn/top1_k1']
    assert metrics['knn/top5_k17'] > metrics['knn/top1_k17']
    half = dict(bank_dtype='float16', chunk_size=5)
    assert val(root, tmp_path, k=(1, 3, 17), **half) == metrics


def test_test_loop_with_several_temperatures(root, tmp_path):
    """One key, data_root, moves both sets."""
    parts = {
        part: folder_loader(tmp_path / 'nowhere', data_prefix=part)
        for part in ('bank', 'query')
    }
    settings = dict(k=(3, 5), temperature=(0.05, 0.5), data_root=str(root))
    how = parts | settings | dict(stage='test', which='student')
    metrics = toy_runner(**config(root, tmp_path, **how)).test()
    for k, t in itertools.product((3, 5), (0.05, 0.5)):
        expected = expected_accuracy(root, k, t, 'student')
        assert metrics[f'knn/top1_k{k}_t{t:g}'] == pytest.approx(expected)
    assert parts['bank']['dataset']['data_root'] == str(tmp_path / 'nowhere')


def test_other_metrics_can_read_the_predictions(root, tmp_path):
    cfg = config(root, tmp_path, k=(3, 1))
    cfg['val_evaluator'] = [
        cfg['val_evaluator'],
        dict(type='mmpretrain.Accuracy', topk=1),
    ]
    metrics = toy_runner(**cfg).val()
    assert metrics['accuracy/top1'] == pytest.approx(metrics['knn/top1_k3'])


def test_hooks_and_mode(root, tmp_path, monkeypatch):
    run = toy_runner(**config(root, tmp_path, k=3))
    log, call_hook = run.model.log, run.call_hook

    def note(name, **kwargs):
        assert ('metrics' in kwargs) == (name == 'after_val_epoch')
        log.append(name)
        call_hook(name, **kwargs)

    monkeypatch.setattr(run, 'call_hook', note)
    run.val()
    # The bank follows before_val_epoch, where EMAHook swaps the weights.
    start, end = map(log.index, ('before_val', 'after_run'))
    assert log[start:end] == (
        ['before_val', 'before_val_epoch']
        + [('extract_feat', False)] * (5 + 4)
        + ['after_val_epoch', 'after_val']
    )


@pytest.mark.parametrize('by_epoch', [True, False])
def test_training_goes_on_as_if_nothing_had_run(root, tmp_path, by_epoch):
    length = dict(max_epochs=2)
    if not by_epoch:
        length = dict(max_iters=4, val_interval=2)
    flip = [*PIPELINE[:2], dict(type='RandomFlip', prob=0.5), PIPELINE[2]]
    bank = folder_loader(root / 'bank', dict(shuffle=True), pipeline=flip)
    saving = dict(type='CheckpointHook', interval=10, by_epoch=by_epoch)

    def train(cfg, **hooks):
        model = PooledPixels()
        run = toy_runner(
            model,
            train_dataloader=bank,
            train_cfg=dict(by_epoch=by_epoch, **length),
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
            log_processor=dict(by_epoch=by_epoch),
            default_hooks=hooks,
            **cfg,
        )
        run.train()
        states = torch.rand(3).tolist(), *np.random.rand(3), random.random()
        return run, model.student.weight.detach(), states

    run, weight, states = train(
        config(root, tmp_path / 'knn', k=3),
        checkpoint=saving | dict(save_best='knn/top1_k3'),
    )
    _, plain_weight, plain_states = train(dict(work_dir=str(tmp_path)))
    assert not torch.equal(weight, PooledPixels().student.weight)
    assert torch.equal(weight, plain_weight)
    assert states == plain_states
    history = run.message_hub.log_scalars['val/knn/top1_k3']
    assert history.current() == pytest.approx(expected_accuracy(root, 3))
    assert len(history.data[0]) == 2
    assert list((tmp_path / 'knn').glob('best_knn_top1_k3_*.pth'))


NO_INDEX = [*PIPELINE[:2], dict(type='PackInputs', meta_keys=())]
OTHER_CLASSES = dict(metainfo=dict(classes='uvwxyz'))


@pytest.mark.parametrize(
    ('word', 'loop', 'bank', 'query'),
    [
        ('k must', dict(k=0), {}, {}),
        ('bank_dtype', dict(bank_dtype='int8'), {}, {}),
        ('labelled .* no class', {}, dict(with_label=False), {}),
        ('val .* no class label', {}, {}, dict(with_label=False)),
        ('never end', {}, dict(sampler=dict(type='InfiniteSampler')), {}),
        ('meta_keys of PackInputs', {}, dict(pipeline=NO_INDEX), {}),
        ('same classes', {}, OTHER_CLASSES, {}),
    ],
)
def test_bad_config(root, tmp_path, word, loop, bank, query):
    loaders = dict(
        bank=folder_loader(root / 'bank', **bank),
        query=folder_loader(root / 'query', **query),
    )
    with pytest.raises(ValueError, match=word):
        val(root, tmp_path, **loaders, **loop)


def test_a_bank_of_several_sets(root, tmp_path):
    bank = folder_loader(root / 'bank')
    both = dict(type='ConcatDataset', datasets=[bank['dataset']] * 2)
    with pytest.raises(ValueError, match='ConcatDataset'):
        val(root, tmp_path, bank=bank | dict(dataset=both))


def _evaluate(root, work_dir, sampler=None, **kwargs):
    loaders = {
        part: folder_loader(root / part, sampler) for part in ('bank', 'query')
    }
    cfg = config(root, work_dir, **loaders, k=(1, 4))
    return toy_runner(**cfg, **kwargs).val()


def _evaluate_all(root, work_dir):
    # The first is the usual one; then shards of a random order, and shards of
    # unequal length.
    return [
        _evaluate(root, work_dir, sampler, launcher='pytorch')
        for sampler in (None, dict(shuffle=True), dict(round_up=False))
    ]


@pytest.mark.processes
@pytest.mark.parametrize('world', [2, 3])
def test_many_processes_agree_with_one(root, tmp_path, world):
    """What they find of each image is a matter of test_knn_bank."""
    expected = _evaluate(root, tmp_path)
    assert 0 < expected['knn/top1_k4'] < 100
    outputs = run_processes(_evaluate_all, world, root, tmp_path)
    assert outputs == [[expected] * 3] * world
