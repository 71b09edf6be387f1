# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A run that was stopped and resumed against one that was not."""

import shutil

import pytest
import torch
from mmengine.runner import Runner

from ..distributed import run_processes
from ..images import demo_config, write_images

pytestmark = pytest.mark.slow
EPOCH_BASED = {
    'train_dataloader.sampler.infinite': False,
    'train_cfg': dict(type='EpochBasedTrainLoop', max_epochs=2),
    'val_cfg': None,
    'val_dataloader': None,
    'val_evaluator': None,
}


def run(root, name, options):
    """Train with the demo's config, a checkpoint every two iterations."""
    settings = {
        'train_cfg.max_iters': 10,
        'train_cfg.val_interval': 4,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': 9,
    }
    train_cfg = options.pop('train_cfg', None)
    cfg = demo_config(root, f'{root}/{name}', **settings | options)
    if train_cfg:
        cfg.train_cfg = train_cfg
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner


def state(runner):
    """Everything that training changes."""
    optimizer = runner.optim_wrapper.state_dict()['state']
    moments = {
        f'{index}.{name}': value
        for index, values in optimizer.items()
        for name, value in values.items()
    }
    schedules = {
        f'schedule{index}': scheduler.state_dict()
        for index, scheduler in enumerate(runner.param_schedulers)
    }
    return runner.model.state_dict() | moments | schedules


def assert_same(first, second):
    assert set(first) == set(second)
    for name, value in first.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, second[name]), name
        else:
            assert value == second[name], name


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp('resume')
    write_images(root)  # 48 images: 6 iterations an epoch
    return root


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize(
    'loop, iteration', [({}, 4), (EPOCH_BASED, 4), (EPOCH_BASED, 6)]
)
def test_resumed_run_is_the_same(root, loop, iteration, workers):
    options = dict(loop)
    options['train_dataloader.num_workers'] = workers
    name = f'whole_{bool(loop)}_{iteration}_{workers}'
    whole = state(run(root, name, dict(options)))
    checkpoint = root / name / f'iter_{iteration}.pth'
    options.update(resume=True, load_from=str(checkpoint))
    resumed = run(root, f'{name}_resumed', options)
    assert resumed.iter == (12 if loop else 10)
    assert_same(state(resumed), whole)


def test_number_of_workers_does_not_matter(root):
    keep_all = {'default_hooks.checkpoint.max_keep_ckpts': -1}
    alone = run(root, 'alone', keep_all)
    assert len(list((root / 'alone').glob('*.pth'))) == 5
    two = run(root, 'two', {'train_dataloader.num_workers': 2})
    assert_same(state(alone), state(two))


def test_other_global_batch(root):
    run(root, 'first', {})
    with pytest.raises(ValueError, match='had 8 images a step'):
        run(
            root,
            'second',
            {
                'train_dataloader.batch_size': 4,
                'resume': True,
                'load_from': str(root / 'first' / 'iter_4.pth'),
            },
        )


def run_rank(root, name, options):
    runner = run(root, name, options)
    runner.model = runner.model.module
    return state(runner)


def test_resume_on_two_ranks(root):
    options = dict(EPOCH_BASED)
    whole = run_processes(run_rank, 2, str(root), 'ranks', dict(options))
    options.update(resume=True, load_from=str(root / 'ranks/iter_4.pth'))
    resumed = run_processes(run_rank, 2, str(root), 'ranks_resumed', options)
    for first, second in zip(whole, resumed):
        assert_same(first, second)


def test_resume_on_another_number_of_ranks(root):
    """Two ranks of four images go on as one rank of eight.

    The order of the images and the schedules are exact, masks are not.
    """
    options = dict(EPOCH_BASED)
    run_processes(run_rank, 2, str(root), 'two_ranks', dict(options))
    options.update(resume=True, load_from=str(root / 'two_ranks/iter_4.pth'))
    whole = torch.load(root / 'two_ranks/iter_12.pth', weights_only=False)
    resumed = run(root, 'one_rank', options)
    assert resumed.iter == 12
    saved = whole['state_dict']
    model = resumed.model.state_dict()
    assert torch.equal(model['codebook.pointer'], saved['codebook.pointer'])
    for ours, theirs in zip(
        resumed.param_schedulers, whole['param_schedulers']
    ):
        assert ours.state_dict() == theirs


def test_interrupted_write_keeps_the_latest_checkpoint(root, monkeypatch):
    options = {'default_hooks.checkpoint.max_keep_ckpts': 1}
    written = []

    def killed(checkpoint, path, **_):
        if written:
            path = str(path)
            with open(path, 'wb') as file:
                file.write(b'half a checkpoint')
            raise KeyboardInterrupt
        written.append(path)
        torch.save(checkpoint, path)

    monkeypatch.setattr('mmengine.runner.runner.save_checkpoint', killed)
    with pytest.raises(KeyboardInterrupt):
        run(root, 'killed', options)
    monkeypatch.undo()
    folder = root / 'killed'
    latest = (folder / 'last_checkpoint').read_text()
    assert latest.endswith('iter_2.pth')
    resumed = run(root, 'killed', options | {'resume': True})
    assert resumed.iter == 10
    assert [path.name for path in folder.glob('*.pth')] == ['iter_10.pth']
    shutil.rmtree(folder)
