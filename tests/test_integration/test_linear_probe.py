# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probing on real digits through the real configs, Runner and tools."""

import json

import pytest
import torch
from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.runner import Runner

from ..digits import (
    digits_config,
    inferencer_top1,
    save_pretraining,
    train,
    write_digits,
)
from ..distributed import run_processes
from ..runs import DDP, assert_same, scalars, state_of
from ..tools import run_tool

CONFIG = 'linear_vit-b16_100e_in1k.py'
FEW_IMAGES = {'train_dataloader.dataset.indices': 150}


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp('linear') / 'digits')


@pytest.fixture(scope='module')
def teacher(digits):
    return save_pretraining(digits / 'moca.pth')


def config(digits, work_dir, name=CONFIG, **options):
    checkpoint = {'load_from': str(digits / 'moca.pth')}
    return digits_config(name, digits, work_dir, **checkpoint | options)


@pytest.fixture(scope='module')
def probe(digits, teacher):
    cfg = config(digits, digits / 'probe', **{'train_cfg.max_epochs': 5})
    return train(cfg)


def test_accuracy_far_above_chance(probe):
    top1 = scalars(probe, 'val/linear/top1')
    assert len(top1) == 5
    assert top1[-1] > 45  # chance is 10
    assert scalars(probe, 'val/linear/top5')[-1] > 85
    entropy = scalars(probe, 'train/best_cross_entropy')
    assert entropy[-5:].mean() < 0.8 * entropy[:5].mean()


@pytest.fixture(scope='module')
def winner(probe, digits):
    """Config and checkpoint of the exported classifier, and its result."""
    stem = digits / 'probe' / 'linear_best'
    saved = torch.load(f'{stem}.pth', weights_only=True)
    assert saved['meta']['dataset_meta']['classes'] == tuple('0123456789')
    result = saved['meta']['linear_probe']
    assert result['top1'] == scalars(probe, 'val/linear/top1').max()
    assert result['base_lr'] == probe.model.head.base_lrs[result['head']]
    return f'{stem}.py', f'{stem}.pth', result


def test_tool_tests_the_winner(winner, digits):
    out = digits / 'metrics.json'
    run_tool(
        *('tools/test.py', *winner[:2], '--work-dir', digits / 'test'),
        *('--out', out, '--out-item', 'metrics'),
    )
    metrics = json.loads(out.read_text())
    for name in ('top1', 'top5'):
        assert metrics[f'accuracy/{name}'] == pytest.approx(winner[2][name])


def test_inferencer_loads_the_winner(winner, digits):
    top1 = inferencer_top1(*winner[:2], digits)
    assert top1 == pytest.approx(winner[2]['top1'])


def test_other_features(digits, teacher, tmp_path):
    """Trained, exported and tested with the same result."""
    name = 'linear_vit-b16_100e_in1k_cls-avg.py'
    options = FEW_IMAGES | {'train_cfg.max_epochs': 1}
    runner = train(config(digits, tmp_path, name, **options))
    exported = Config.fromfile(tmp_path / 'linear_best.py')
    exported.update(
        work_dir=str(tmp_path / 'test'),
        load_from=str(tmp_path / 'linear_best.pth'),
        log_level='WARNING',
        experiment_name=f'test_{tmp_path.name}',
    )
    metrics = Runner.from_cfg(exported).test()
    top1 = scalars(runner, 'val/linear/top1')[-1]
    assert metrics['accuracy/top1'] == pytest.approx(top1)


def test_resumed_run_is_the_same(digits, teacher, tmp_path):
    options = FEW_IMAGES | {'default_hooks.checkpoint.max_keep_ckpts': -1}
    whole = train(config(digits, tmp_path / 'whole', **options))
    options['resume'] = True
    options['load_from'] = str(tmp_path / 'whole' / 'epoch_1.pth')
    resumed = train(config(digits, tmp_path / 'resumed', **options))
    assert resumed.iter == whole.iter == 6
    assert_same(state_of(resumed), state_of(whole))
    for metric in ('linear/top1', 'linear/base_lr'):
        values = [scalars(r, f'val/{metric}')[-1] for r in (whole, resumed)]
        assert values[0] == values[1]
    # A checkpoint of the probe itself is tested as it is.
    options.update(resume=False, load_from=f'{tmp_path}/resumed/epoch_2.pth')
    cfg = config(digits, tmp_path / 'tested', **options)
    metrics = Runner.from_cfg(cfg).test()
    assert metrics['linear/top1'] == scalars(resumed, 'val/linear/top1')[-1]


def run_rank(digits, name, batch_size):
    options = FEW_IMAGES | {
        'train_dataloader.batch_size': batch_size,
        'train_cfg.max_epochs': 1,
        # The same for both: MMEngine knows the ranks' batches only.
        'auto_scale_lr.enable': False,
        'optim_wrapper.optimizer.lr': 50 / 256,
    }
    if get_world_size() > 1:
        options |= DDP
    runner = train(config(digits, digits / name, **options))
    model = getattr(runner.model, 'module', runner.model)
    return model.head.weight.detach(), scalars(runner, 'val/linear/top1')[-1]


@pytest.mark.processes
def test_two_ranks_train_as_one(digits, teacher):
    (alone,) = run_processes(run_rank, 1, digits, 'alone', 50)
    first, second = run_processes(run_rank, 2, digits, 'both', 25)
    assert torch.equal(first[0], second[0])
    torch.testing.assert_close(first[0], alone[0], rtol=1e-4, atol=1e-5)
    assert first[1] == second[1] == alone[1]
    assert (digits / 'both' / 'linear_best.pth').exists()
