# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run counts, and what it counts in when it goes on."""

import os
import signal

import pytest
import torch
from mmengine.hooks import Hook

from ..runs import (
    NO_VALIDATION,
    assert_same,
    by_epochs,
    demo_model,
    demo_runner,
    state_of,
)


@pytest.fixture(scope='module')
def epochs(root):
    """The first of two epochs, of 48 images and 6 steps each."""
    demo_runner(root, 'epochs', **by_epochs(1)).train()
    return by_epochs(2) | {'resume': True}


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'batch_size': 4}, 'global_batch_size=8, this one has 4'),
        (
            {'batch_size': 4, 'accumulative_counts': 2},
            'micro_batches=1, this one has 2',
        ),
        ({'data_prefix': 'val'}, 'num_images=48, this one has 15'),
    ],
)
def test_a_run_goes_on_in_the_same_steps(root, epochs, options, message):
    places = dict(
        batch_size='train_dataloader.batch_size',
        accumulative_counts='optim_wrapper.accumulative_counts',
        data_prefix='train_dataloader.dataset.data_prefix',
    )
    options = {places[name]: value for name, value in options.items()}
    runner = demo_runner(root, 'epochs', **epochs | options)
    with pytest.raises(ValueError, match=f'the run to resume had {message}'):
        runner.train()


@pytest.mark.parametrize('infinite', [False, True])
def test_the_sampler_ends_where_the_loop_counts_epochs(root, infinite):
    """Whatever the config says."""
    key = 'train_dataloader.sampler.infinite'
    ends = demo_runner(
        root, f'ends_{infinite}', **by_epochs(1) | {key: infinite}
    )
    ends.train()
    assert ends.iter == 6
    options = {key: infinite, 'train_cfg.max_iters': 7} | NO_VALIDATION
    goes_on = demo_runner(root, f'goes_on_{infinite}', **options)
    goes_on.train()
    sampler = goes_on.train_dataloader.sampler
    assert sampler.infinite and not ends.train_dataloader.sampler.infinite


class Stop(Hook):
    """Asks the run to stop after four more steps."""

    def __init__(self):
        self.left = 4

    def after_train_iter(self, runner, *args, **kwargs):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize('sampler', ['DefaultSampler', 'mmmoca.SeededSampler'])
def test_epochs_that_are_stopped(root, sampler):
    """One that cannot be skipped into starts anew, and steps still count."""
    sampler = dict(_delete_=True, type=sampler, shuffle=True)
    options = by_epochs(2) | {'train_dataloader.sampler': sampler}
    name = f'stopped_{sampler["type"]}'
    stopped = demo_runner(root, name, **options)
    stopped.register_hook(Stop())
    with pytest.raises(SystemExit):
        stopped.train()
    resumed = demo_runner(root, name, **options, resume=True)
    resumed.train()
    assert (resumed.epoch, resumed.iter) == (2, 12)


def test_a_schedule_that_pickles_code(root):
    schedule = dict(
        _delete_=True,
        type='OneCycleLR',
        eta_max=1e-3,
        total_steps=4,
        by_epoch=False,
    )
    options = {
        'param_scheduler': schedule,
        'train_cfg.max_iters': 4,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    } | NO_VALIDATION
    whole = demo_runner(root, 'cycle', **options)
    whole.train()
    options |= {'resume': True, 'load_from': f'{whole.work_dir}/iter_2.pth'}
    resumed = demo_runner(root, 'cycle_resumed', **options)
    resumed.train()
    assert_same(state_of(resumed), state_of(whole))


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
        for name in list(state):
            if name.startswith('teacher.'):
                del state[name]
