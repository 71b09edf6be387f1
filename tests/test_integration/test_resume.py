# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A run that was stopped and resumed against one that was not."""

import functools
import os

import pytest
import torch

from ..distributed import run_processes
from ..runs import assert_same, by_epochs, demo_runner, scalars, state_of
from ..stores import write_arrow, write_shards

pytestmark = pytest.mark.slow
EPOCHS = by_epochs(2)  # of 6 iterations
WORKERS = 'train_dataloader.num_workers'


def run(root, name, options):
    """Train with the demo's config, a checkpoint every two iterations."""
    settings = {
        'train_cfg.max_iters': 10,
        'train_cfg.val_interval': 4,
        'model.codebook.centre': 0.9,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    runner = demo_runner(root, name, **settings | options)
    runner.train()
    return runner


def end(root, name, options):
    """State, schedules and k-NN accuracy at the end of such a run."""
    runner = run(root, name, options)
    schedules = [schedule.state_dict() for schedule in runner.param_schedulers]
    names = [n for n in runner.message_hub.log_scalars if 'knn' in n]
    accuracies = {name: scalars(runner, name)[-1] for name in names}
    return runner.iter, state_of(runner), schedules, accuracies


def assert_same_end(first, second):
    assert first[0] == second[0] and first[2:] == second[2:]
    assert_same(first[1], second[1])


@pytest.fixture(scope='module')
def whole(root):
    """Runs that were not stopped: work dir and end, by their kind."""

    @functools.cache
    def train(by_epoch, workers):
        options = (EPOCHS if by_epoch else {}) | {WORKERS: workers}
        name = f'whole_{by_epoch}_{workers}'
        return root / name, end(root, name, options)

    return train


@pytest.fixture(scope='module')
def on_two_ranks(root):
    return run_processes(end, 2, root, 'ranks', EPOCHS)


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize(
    'by_epoch, iteration', [(False, 4), (True, 4), (True, 6)]
)
def test_resumed_run_is_the_same(root, whole, by_epoch, iteration, workers):
    folder, expected = whole(by_epoch, workers)
    options = {
        **(EPOCHS if by_epoch else {}),
        WORKERS: workers,
        'resume': True,
        'load_from': str(folder / f'iter_{iteration}.pth'),
    }
    resumed = end(root, f'{folder.name}_{iteration}', options)
    assert resumed[0] == (12 if by_epoch else 10)
    assert_same_end(resumed, expected)


@pytest.fixture(scope='module')
def stores(root):
    """Both splits as shards and as data sets of Hugging Face."""
    pytest.importorskip('webdataset')
    pytest.importorskip('datasets')
    for split in ('train', 'val'):
        write_shards(root / split, root / 'ImageShards' / split)
        write_arrow(root / split, root / 'HFImages' / split)
    return root


@pytest.mark.parametrize(
    'kind, workers', [('ImageShards', 2), ('HFImages', 0)]
)
def test_resumed_from_another_store(stores, whole, kind, workers):
    """A run on the folder goes on, in the epoch, on what was made of it."""
    folder, expected = whole(False, 0)
    options = {
        f'{loader}.dataset.{key}': value
        for loader in ('train_dataloader', 'val_dataloader')
        + ('val_cfg.bank_dataloader',)
        for key, value in (
            ('type', f'mmmoca.{kind}'),
            ('data_root', f'{stores}/{kind}'),
        )
    }
    checkpoint = dict(resume=True, load_from=str(folder / 'iter_4.pth'))
    options |= checkpoint | {WORKERS: workers}
    resumed = end(stores, kind, options)
    assert 'val/knn/top1_k20' in resumed[-1]
    assert_same_end(resumed, expected)


def test_number_of_workers_does_not_matter(whole):
    (alone, expected), (_, actual) = whole(False, 0), whole(False, 2)
    assert len(list(alone.glob('*.pth'))) == 5
    assert_same_end(actual, expected)


def test_resume_on_two_ranks(root, on_two_ranks):
    checkpoint = dict(resume=True, load_from=f'{root}/ranks/iter_4.pth')
    options = EPOCHS | checkpoint
    resumed = run_processes(end, 2, root, 'ranks_resumed', options)
    for first, second in zip(resumed, on_two_ranks):
        assert_same_end(first, second)


def test_resume_on_another_number_of_ranks(root, on_two_ranks):
    """Two ranks of four images go on as one rank of eight.

    The order of the images and the schedules are exact, masks are not.
    """
    checkpoint = dict(resume=True, load_from=f'{root}/ranks/iter_4.pth')
    iteration, state, schedules, _ = end(root, 'one_rank', EPOCHS | checkpoint)
    steps, expected, expected_schedules, _ = on_two_ranks[0]
    assert iteration == steps == 12 and schedules == expected_schedules
    pointer = 'codebook.pointer'
    assert torch.equal(state[pointer], expected[pointer])


@pytest.mark.parametrize('call', ['replace', 'fsync'])
def test_interrupted_write_keeps_the_latest_checkpoint(
    root, monkeypatch, call
):
    options = {'default_hooks.checkpoint.max_keep_ckpts': 1}
    folder = root / f'killed_{call}'
    do = getattr(os, call)

    def killed(*args):
        if list(folder.glob('*.pth')):
            raise KeyboardInterrupt
        do(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f'mmmoca.engine.hooks.checkpoint_hook.os.{call}', killed)
        run(root, folder.name, options)
    assert [path.name for path in folder.glob('*.pth*')] == ['iter_2.pth']
    latest = (folder / 'last_checkpoint').read_text()
    assert latest.endswith('iter_2.pth')
    assert run(root, folder.name, options | {'resume': True}).iter == 10
    assert [path.name for path in folder.glob('*.pth')] == ['iter_10.pth']
