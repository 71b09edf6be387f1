# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The k-NN loops in real runners, on image folders.

test_bank and test_train_and_test use two processes.
"""

import itertools
from unittest import mock

import pytest
import torch
from mmengine.registry import DATASETS
from mmengine.runner import Runner

from mmmoca.checkpoints import guarded, read_checkpoint
from mmmoca.evaluation.loaders import with_data_root
from tests.helpers.frozen import (
    PIPELINE,
    PooledPixels,
    described,
    draw,
    folder_loader,
    toy_runner,
)
from tests.helpers.judges import knn_judge


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """Write 17 bank and 13 query images of 6 classes."""
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


def expected_accuracy(root, k, temperature=0.07, which='teacher'):
    """Return scikit-learn's top-1 accuracy on features computed one by one."""
    _, *bank = described(root / 'bank', which)
    _, *query = described(root / 'query', which)
    return 100 * knn_judge(*bank, k, temperature).score(*query)


@pytest.mark.parametrize('alike', [True, False])
def test_a_bank_that_is_prepared_otherwise(root, tmp_path, alike):
    query = folder_loader(root / 'query')
    if not alike:
        query['dataset']['pipeline'] = [
            dict(type='LoadImageFromFile'),
            dict(type='Resize', scale=8),
            dict(type='PackInputs'),
        ]
    parts = config(root, tmp_path, query=query, k=1)
    runner = toy_runner(**parts, cfg=parts)
    with mock.patch.object(runner.logger, 'warning') as warn:
        assert runner.val_loop is not None
    assert warn.called != alike


def test_equals_sklearn(root, tmp_path, monkeypatch):
    """The loop equals scikit-learn, and data_root alone sets both folders."""
    parts = {
        part: folder_loader(tmp_path / 'nowhere', data_prefix=part)
        for part in ('bank', 'query')
    }
    settings = dict(k=(3, 1, 17), temperature=(0.07, 0.5), which='student')
    settings |= dict(parts, data_root=str(root), stage='test')
    monkeypatch.setattr('mmmoca.evaluation.metrics.TOP5_FROM', 1)
    cfg = config(root, tmp_path, **settings)
    # Other metrics read the predictions of the first k.
    others = dict(type='mmpretrain.Accuracy', topk=1)
    cfg['test_evaluator'] = [cfg['test_evaluator'], others]
    metrics = toy_runner(**cfg).test()
    others = metrics.pop('accuracy/top1')
    assert others == pytest.approx(metrics['knn/top1_k3_t0.07'])
    for k, t in itertools.product((3, 1, 17), (0.07, 0.5)):
        expected = expected_accuracy(root, k, t, 'student')
        assert 0 < expected < 100
        assert metrics[f'knn/top1_k{k}_t{t:g}'] == pytest.approx(expected)
    # One neighbour votes for one class, so the other four of the top five do
    # not count.
    assert metrics['knn/top5_k1_t0.5'] == metrics['knn/top1_k1_t0.5']
    assert metrics['knn/top5_k17_t0.5'] > metrics['knn/top1_k17_t0.5']


def test_hooks_and_mode(root, tmp_path):
    run = toy_runner(**config(root, tmp_path, k=3))
    log = run.model.log
    run.call_hook = lambda name, **kwargs: log.append((name, [*kwargs]))
    run.val()
    # The bank is built after before_val_epoch, where EMAHook swaps the
    # weights.
    start, end = map(log.index, (('before_val', []), ('after_run', [])))
    assert log[start:end] == [
        ('before_val', []),
        ('before_val_epoch', []),
        *[('extract_feat', False)] * (5 + 4),
        ('after_val_epoch', ['metrics']),
        ('after_val', []),
    ]


@pytest.mark.slow
def test_training_goes_on_as_if_nothing_had_run(root, tmp_path):
    """Baselines are measured before the first step, and not on resume."""
    seeds, flip = dict(type='mmmoca.SeedTransforms'), dict(type='RandomFlip')
    flip = [seeds, *PIPELINE[:2], dict(flip, prob=0.5), PIPELINE[2]]
    order = dict(type='mmmoca.SeededSampler', shuffle=True)
    bank = folder_loader(root / 'bank', order, pipeline=flip)

    def train(**cfg):
        run = toy_runner(
            train_dataloader=bank,
            train_cfg=dict(by_epoch=True, max_epochs=2),
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
            custom_hooks=[dict(type='mmmoca.ReproducibilityHook')],
            **cfg,
        )
        run.train()
        batches = run.model.log.count(('extract_feat', False))
        found = {
            name.removeprefix('val/knn/'): values.data[0].tolist()
            for name, values in run.message_hub.log_scalars.items()
        }
        return batches, found, run.model.student.weight.detach()

    saving = dict(
        checkpoint=dict(
            type='CheckpointHook', interval=1, save_best='knn/top1_k3'
        )
    )
    settings = dict(k=(1, 3), which='student', baselines=True)
    cfg = config(root, tmp_path / 'knn', **settings)
    batches, found, weight = train(**cfg, default_hooks=saving)
    _, _, plain_weight = train(work_dir=str(tmp_path))
    assert not torch.equal(weight, PooledPixels().student.weight)
    assert torch.equal(weight, plain_weight)
    assert len(found['top1_k3']) == 2 and 'untrained_k1' not in found
    assert list((tmp_path / 'knn').glob('best_knn_top1_k3_*.pth'))

    start = expected_accuracy(root, 3, which='student')
    assert found['untrained_k3'] == [pytest.approx(start)]
    features = []
    for part in ('bank', 'query'):
        images = Runner.build_dataloader(folder_loader(root / part)).dataset
        pixels = [sample['inputs'].flatten().float() for sample in images]
        pixels = torch.stack([p - p.mean() for p in pixels]).numpy()
        features.append((pixels, images.get_gt_labels()))
    pixels = 100 * knn_judge(*features[0], 3).score(*features[1])
    assert found['raw_pixels_k3'] == [pytest.approx(pixels)]
    # The end of the log repeats the baselines.
    end = next((tmp_path / 'knn').glob('*/*.log')).read_text()[-200:]
    for name in ('untrained_k3', 'raw_pixels_k3'):
        assert f'{found[name][0]:.1f}' in end
    file = guarded(tmp_path / 'knn' / 'epoch_1.pth')
    saved = read_checkpoint(tmp_path / 'knn' / 'epoch_1.pth')
    saved['meta'] |= dict(epoch=0, iter=0)  # stopped before its first step
    torch.save(saved, tmp_path / 'begun.pth')
    for path, count in ((file, 9), (tmp_path / 'begun.pth', 18)):
        resumed, again, _ = train(**cfg, load_from=str(path), resume=True)
        assert again['untrained_k3'] == found['untrained_k3']
        assert (batches, resumed) == (27, count)  # nine per evaluation
    _, loaded, _ = train(**cfg, load_from=file, cfg=dict(load_from=file))
    assert 'start_k3' in loaded and 'untrained_k3' not in loaded
    model = PooledPixels()
    model.init_cfg = dict(type='Pretrained', checkpoint=file)
    _, loaded, _ = train(**cfg, model=model)
    assert 'start_k3' in loaded and 'untrained_k3' not in loaded


@pytest.mark.parametrize(
    'wrap',
    [
        lambda part: part,
        lambda part: dict(type='RepeatDataset', times=2, dataset=part),
        lambda part: dict(type='mmmoca.HeldOut', every=2, dataset=part),
        lambda part: dict(type='ConcatDataset', datasets=[part, part]),
        lambda part: dict(
            type='RepeatDataset',
            times=1,
            dataset=dict(type='ConcatDataset', datasets=[part]),
        ),
    ],
)
def test_data_root_reaches_the_sets_in_wrappers(root, tmp_path, wrap):
    loader = folder_loader(tmp_path / 'nowhere', data_prefix='query')
    loader['dataset'] = wrap(loader['dataset'])
    moved = with_data_root(loader, str(root))['dataset']
    assert len(DATASETS.build(dict(moved, _scope_='mmpretrain'))) > 0
    assert 'nowhere' in str(loader) and 'nowhere' not in str(moved)
