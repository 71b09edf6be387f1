# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run counts, and what it counts in when it goes on.

That it goes on bit for bit is a matter of test_integration.
"""

import pytest
import torch

from ..runs import (
    NO_VALIDATION,
    assert_same,
    by_epochs,
    demo_model,
    demo_runner,
    state_of,
)

BATCH = 'train_dataloader.batch_size'
INFINITE = 'train_dataloader.sampler.infinite'


def train(root, name, **options):
    runner = demo_runner(root, name, **options)
    runner.train()
    return runner


def train_and_resume(root, name, iteration, **options):
    """A run, and one that goes on from a checkpoint of it."""
    options |= {
        'default_hooks.checkpoint.interval': iteration,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    whole = train(root, name, **options)
    file = f'{whole.work_dir}/iter_{iteration}.pth'
    again = dict(resume=True, load_from=file)
    return whole, train(root, f'{name}_resumed', **options, **again)


@pytest.fixture(scope='module')
def epochs(root):
    """The first of two epochs, of 48 images and 6 steps each."""
    train(root, 'epochs', **by_epochs(1))
    return by_epochs(2) | {'resume': True}


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({BATCH: 4}, 'global_batch_size=8, this one has 4'),
        (
            {BATCH: 4, 'optim_wrapper.accumulative_counts': 2},
            'micro_batches=1, this one has 2',
        ),
        (
            {'train_dataloader.dataset.data_prefix': 'val'},
            'num_images=48, this one has 15',
        ),
    ],
)
def test_a_run_goes_on_in_the_same_steps(root, epochs, options, message):
    with pytest.raises(ValueError, match=f'the run to resume had {message}'):
        train(root, 'epochs', **epochs | options)


@pytest.mark.slow
@pytest.mark.parametrize('infinite', [False, True])
def test_the_sampler_ends_where_the_loop_counts_epochs(root, infinite):
    """Whatever the config says."""
    said = {INFINITE: infinite}
    ends = train(root, f'ends_{infinite}', **by_epochs(1) | said)
    assert ends.iter == 6
    options = said | {'train_cfg.max_iters': 7} | NO_VALIDATION
    goes_on = train(root, f'goes_on_{infinite}', **options)
    for runner in (ends, goes_on):
        sampler = runner.train_dataloader.sampler
        assert sampler.infinite == (runner is goes_on)


@pytest.mark.slow
def test_a_sampler_that_cannot_be_skipped_into(root):
    """It starts anew, and steps still count."""
    sampler = dict(_delete_=True, type='DefaultSampler', shuffle=True)
    options = by_epochs(2) | {'train_dataloader.sampler': sampler}
    _, resumed = train_and_resume(root, 'anew', 4, **options)
    assert (resumed.epoch, resumed.iter) == (2, 12)


def test_a_schedule_that_pickles_code(root):
    schedule = dict(_delete_=True, type='OneCycleLR', eta_max=1e-3)
    schedule |= dict(total_steps=4, by_epoch=False)
    options = {'param_scheduler': schedule, 'train_cfg.max_iters': 4}
    runs = train_and_resume(root, 'cycle', 2, **options | NO_VALIDATION)
    assert_same(*map(state_of, runs))


def test_teacher_of_a_whole_model(tmp_path):
    """A file that ``init_cfg`` names may have one, or not."""
    state = demo_model().state_dict()
    state['backbone.cls_token'].fill_(1)
    state['teacher.cls_token'].fill_(2)
    init = dict(type='Pretrained', checkpoint=str(tmp_path / 'whole.pth'))
    for teacher in (2, 1):
        torch.save(state, init['checkpoint'])
        model = demo_model(**{'model.init_cfg': init})
        assert (model.backbone.cls_token == 1).all()
        assert (model.teacher.cls_token == teacher).all()
        state = {k: v for k, v in state.items() if 'teacher.' not in k}
