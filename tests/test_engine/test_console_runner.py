# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the tools' runner does, and what it leaves behind."""

import io
import logging
from datetime import timedelta
from multiprocessing import active_children
from pathlib import Path
from unittest import mock

import pytest
from mmengine.config import Config
from torch import distributed, nn

from mmmoca.engine import CodebookHook
from mmmoca.engine.console import FAILED, filter_terminal
from mmmoca.engine.mmengine import stop_workers
from mmmoca.engine.processes import collective_timeout, join_processes
from mmmoca.engine.runners import ConsoleRunner
from mmmoca.evaluation.memory import shared_memory
from mmmoca.shipped import find_config

from ..helpers.images import DEMO_CONFIG, point_to
from ..helpers.runs import (
    NO_VALIDATION,
    assert_same,
    demo_runner,
    scalars,
    state_of,
)


@pytest.mark.parametrize('device', ['cpu', 'mps'])
def test_processes_without_cuda(device, monkeypatch):
    monkeypatch.setattr('mmengine.device.get_device', lambda: device)
    with pytest.raises(RuntimeError):
        join_processes(Config(dict(launcher='slurm')))


def test_cpu_processes_wait_as_long_as_the_config_says(monkeypatch):
    join = mock.Mock()
    monkeypatch.setattr(distributed, 'init_process_group', join)
    monkeypatch.setattr('mmengine.device.get_device', lambda: 'cpu')
    env_cfg = dict(dist_cfg=dict(backend='nccl', timeout=90))
    cfg = Config(dict(launcher='pytorch', env_cfg=env_cfg))
    join_processes(cfg)
    join.assert_called_once_with('gloo', timeout=timedelta(seconds=90))
    assert cfg.env_cfg.dist_cfg.backend == 'gloo'
    assert collective_timeout(dict(env_cfg={})) is None


@pytest.mark.parametrize(
    ('given', 'used'),
    [
        (
            None,
            dict(
                type='MMDistributedDataParallel',
                broadcast_buffers=False,
                device_ids=None,
                find_unused_parameters=True,
                gradient_as_bucket_view=True,
            ),
        ),
        (dict(type='Own', a=1), dict(type='Own', a=1)),
    ],
)
def test_wrappers_on_processes_of_cpus(given, used, monkeypatch):
    """Gradients are views of DDP's buckets, and SyncBN becomes BatchNorm."""
    wrap = mock.Mock()
    monkeypatch.setattr('mmengine.runner.Runner.wrap_model', wrap)
    place = 'mmmoca.engine.runners.console_runner.get_device'
    monkeypatch.setattr(place, lambda: 'cpu')
    cfg = dict(find_unused_parameters=True)
    runner = mock.Mock(spec=ConsoleRunner, distributed=True, cfg=cfg)
    runner.__class__ = ConsoleRunner
    layers = nn.Sequential(nn.SyncBatchNorm(2))
    ConsoleRunner.wrap_model(runner, given, layers)
    wrapper, model = wrap.call_args.args[-2:]
    assert wrapper == used
    assert not isinstance(model[0], nn.SyncBatchNorm)


@pytest.mark.slow
def test_no_worker_outlives_a_run(root):
    """PyTorch would wait for each worker when a program on a GPU ends."""
    loader = dict(num_workers=1, persistent_workers=True)
    parts = 'train_dataloader', 'val_dataloader', 'val_cfg.bank_dataloader'
    options = {f'{part}.{k}': v for part in parts for k, v in loader.items()}
    options |= {'train_cfg.max_iters': 1, 'train_cfg.val_interval': 1}
    runner = demo_runner(root, 'workers', **options)
    runner.train()
    assert scalars(runner, 'val/knn/top1_k20').size == 1
    assert active_children() == []
    assert next(iter(runner.train_dataloader))
    stop_workers(runner)


@pytest.mark.slow
def test_a_run_after_a_refused_one_of_its_name(root):
    """Runs that start within one second have the same name."""
    kind = dict(experiment_name='same')
    with pytest.raises(ValueError, match='tap_layer'):
        demo_runner(root, 'same', **kind, **{'model.backbone.tap_layer': 99})
    with pytest.raises(ValueError, match='val_evaluator'):  # by MMEngine
        demo_runner(root, 'half', **kind, val_evaluator=None)
    runner = demo_runner(root, 'other', **kind)
    assert len([*Path(runner.log_dir).rglob('*.*')]) == 2  # log and config
    broken = mock.patch.object(CodebookHook, 'after_train_iter', None)
    with broken, pytest.raises(TypeError) as stopped:
        runner.train()
    (log,) = Path(runner.log_dir).glob('*.log')
    assert f'TypeError: {stopped.value}' in log.read_text()


def test_a_batch_of_more_images_than_there_are(root):
    """A batch may repeat images if the sampler is infinite."""
    cfg = Config.fromfile(DEMO_CONFIG)
    point_to(cfg, root)
    cfg.train_dataloader.batch_size = 49
    cfg.train_dataloader.sampler.infinite = True
    ConsoleRunner.build_dataloader(cfg.train_dataloader)


def test_advice_where_there_is_no_shared_memory():
    """PyTorch names shared memory in the error, or in the error's cause."""
    error = RuntimeError('unable to allocate shared memory(shm)')
    worker = RuntimeError('DataLoader worker exited unexpectedly')
    with pytest.raises(RuntimeError, match='num_workers=0'), shared_memory():
        raise worker from error
    other = RuntimeError('CUDA out of memory')
    with pytest.raises(RuntimeError, match='memory$'), shared_memory():
        raise other


@pytest.mark.parametrize(
    ('fail', 'shown'),
    [(lambda: int('x'), True), (lambda: find_config('x'), False)],
)
def test_the_terminal_has_tracebacks_of_other_code(fail, shown):
    """Our own errors show only their message."""
    logger, terminal = logging.Logger('run'), io.StringIO()
    logger.addHandler(logging.StreamHandler(terminal))
    filter_terminal(logger)
    try:
        fail()
    except (OSError, ValueError):
        logger.exception(FAILED)
    assert ('Traceback' in terminal.getvalue()) == shown


@pytest.mark.slow
def test_layers_behind_frozen_ones_learn_when_they_recompute(root):
    """With MMEngine's key alone, these layers would get no gradients."""
    options = {'train_cfg.max_iters': 2, 'model.backbone.frozen_stages': 1}
    names = [f'backbone.layers.{number}' for number in range(2)]
    runs = []
    for recomputed in (None, names):
        key = dict(activation_checkpointing=recomputed)
        name = 'recomputed' if recomputed else 'frozen'
        runner = demo_runner(root, name, **options, **NO_VALIDATION, **key)
        runner.train()
        runs.append(state_of(runner))
    assert_same(*runs)
