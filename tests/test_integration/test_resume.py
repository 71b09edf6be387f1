# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A run that was stopped and resumed against one that was not."""

import shutil

import pytest
import torch

from mmmoca.checkpoints import read_checkpoint

from ..digits import digits_config, save_pretraining, train, write_digits
from ..distributed import run_processes
from ..runs import assert_same, by_epochs, demo_runner, scalars, state_of
from ..stores import write_arrow, write_shards

pytestmark = pytest.mark.slow
LENGTHS = dict(iters={'train_cfg.max_iters': 10}, epochs=by_epochs(2))
WORKERS = 'train_dataloader.num_workers'


def end(root, name, options):
    """State, schedules and k-NN accuracy at the end of a run of the demo."""
    settings = {
        'train_cfg.val_interval': 4,
        'model.codebook.centre': 0.9,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    runner = demo_runner(root, name, **settings | options)
    runner.train()
    schedules = [schedule.state_dict() for schedule in runner.param_schedulers]
    names = [n for n in runner.message_hub.log_scalars if 'knn' in n]
    accuracies = {name: scalars(runner, name)[-1] for name in names}
    return runner.iter, state_of(runner), schedules, accuracies


def resume(root, run, iteration):
    """Options of a run that goes on from a checkpoint of another one."""
    file = root / run / f'iter_{iteration}.pth'
    return dict(resume=True, load_from=str(file))


def assert_same_end(first, second):
    assert first[0] == second[0] and first[2:] == second[2:]
    assert_same(first[1], second[1])


@pytest.fixture(scope='module')
def whole(root):
    """Ends of runs that were not stopped, by their kind."""
    return {kind: end(root, kind, LENGTHS[kind]) for kind in LENGTHS}


@pytest.fixture(scope='module')
def on_two_ranks(root):
    return run_processes(end, 2, root, 'ranks', LENGTHS['epochs'])


@pytest.mark.parametrize(
    'kind, iteration', [('iters', 4), ('epochs', 4), ('epochs', 6)]
)
def test_resumed_run_is_the_same(root, whole, kind, iteration):
    """Of 12 steps in two epochs, and on another number of workers."""
    options = LENGTHS[kind] | {WORKERS: 2} | resume(root, kind, iteration)
    resumed = end(root, f'{kind}_{iteration}', options)
    assert_same_end(resumed, whole[kind])


def test_resumed_after_an_epoch_within_a_step(root):
    """Six iterations, steps of four: it is saved two iterations later."""
    options = by_epochs(2) | {
        'optim_wrapper.accumulative_counts': 4,
        'default_hooks.checkpoint.by_epoch': True,
        'default_hooks.checkpoint.interval': 1,
        'train_cfg.val_interval': 1,
    }
    whole = end(root, 'accumulated', options)
    file = root / 'accumulated' / 'epoch_1.pth'
    assert read_checkpoint(file)['meta']['iter'] == 8
    more = dict(resume=True, load_from=str(file))
    assert_same_end(end(root, 'accumulated_on', options | more), whole)


def test_an_epoch_of_another_length_is_refused(root, whole):
    content = read_checkpoint(root / 'epochs' / 'iter_4.pth')
    content['meta']['iterations_per_epoch'] += 1  # on fewer ranks, say
    torch.save(content, root / 'longer.pth')
    options = dict(resume=True, load_from=str(root / 'longer.pth'))
    with pytest.raises(ValueError, match='iterations_per_epoch'):
        end(root, 'shorter', LENGTHS['epochs'] | options)


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
    options = LENGTHS['iters'] | resume(stores, 'iters', 4)
    options[WORKERS] = workers
    loaders = 'train_dataloader', 'val_dataloader', 'val_cfg.bank_dataloader'
    for loader in loaders:
        options[f'{loader}.dataset.type'] = f'mmmoca.{kind}'
        options[f'{loader}.dataset.data_root'] = f'{stores}/{kind}'
    resumed = end(stores, kind, options)
    assert 'val/knn/top1_k20' in resumed[-1]
    assert_same_end(resumed, whole['iters'])


def test_resume_on_two_ranks(root, on_two_ranks):
    """All of which have the same state."""
    options = LENGTHS['epochs'] | resume(root, 'ranks', 4)
    resumed = run_processes(end, 2, root, 'ranks_resumed', options)
    assert on_two_ranks[0][1]['codebook.token_mean'].any()
    assert_same(on_two_ranks[0][1], on_two_ranks[1][1])
    for first, second in zip(resumed, on_two_ranks):
        assert_same_end(first, second)


def test_resume_on_another_number_of_ranks(root, on_two_ranks):
    """Two ranks of four images go on as one rank of eight.

    The order of the images and the schedules are exact, masks are not.
    """
    options = LENGTHS['epochs'] | resume(root, 'ranks', 4)
    iteration, state, schedules, _ = end(root, 'one_rank', options)
    steps, expected, expected_schedules, _ = on_two_ranks[0]
    assert iteration == steps == 12 and schedules == expected_schedules
    pointer = 'codebook.pointer'
    assert torch.equal(state[pointer], expected[pointer])


@pytest.mark.parametrize(
    'name', ['linear_vit-b16_100e_in1k.py', 'finetune_vit-b16_100e_in1k.py']
)
def test_classifiers(tmp_path, name):
    """Mixup, cutmix, drop path and augmentation, from a folder alone."""
    root = write_digits(tmp_path / 'digits', 200)
    save_pretraining(root / 'moca.pth')
    options = {
        'load_from': str(root / 'moca.pth'),
        WORKERS: 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    whole = train(digits_config(name, root, tmp_path / 'whole', **options))
    (tmp_path / 'resumed').mkdir()
    shutil.copy(tmp_path / 'whole' / 'epoch_1.pth', tmp_path / 'resumed')
    options |= {'resume': True, 'load_from': None}
    resumed = train(digits_config(name, root, tmp_path / 'resumed', **options))
    assert resumed.iter == whole.iter == 6
    assert_same(state_of(resumed), state_of(whole))
