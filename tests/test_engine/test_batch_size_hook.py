# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Learning rates follow the images of an optimiser step."""

import pytest
from mmengine.dist import get_world_size

from ..distributed import run_processes
from ..runs import NO_VALIDATION, by_epochs, demo_runner


class Stop(Exception):
    """Raised where the training would begin."""


def rates(root, options):
    """Rates before the first step: main group, prototypes, the logged base."""
    options = {'train_dataloader.batch_size': 4} | NO_VALIDATION | options
    runner = demo_runner(root, f'rates_{get_world_size()}', **options)

    def stop():
        raise Stop

    runner.load_or_resume = stop
    with pytest.raises(Stop):
        runner.train()
    wrapper = runner.optim_wrapper
    (schedule,) = runner.param_schedulers
    groups = wrapper.optimizer.param_groups
    peaks = schedule.base_values
    assert [group['initial_lr'] for group in groups] == peaks[: len(groups)]
    # Constant groups have their rate from the first step on.
    assert groups[-1]['lr'] == peaks[len(groups) - 1]
    return peaks[0], peaks[len(groups) - 1], peaks[-1]


SCALED = {'auto_scale_lr.enable': True}  # of 2e-3 for 32 images


@pytest.mark.parametrize(
    'world_size, micro_batches',
    [(1, 1), (1, 4), pytest.param(2, 4, marks=pytest.mark.processes)],
)
def test_rates_follow_the_images(root, world_size, micro_batches):
    options = SCALED | {'optim_wrapper.accumulative_counts': micro_batches}
    results = run_processes(rates, world_size, root, options)
    expected = 2e-3 * 4 * world_size * micro_batches / 32
    for main, prototypes, base in results:
        assert main == base == pytest.approx(expected, rel=1e-12)
        assert prototypes == pytest.approx(2e-3, rel=1e-12)


def test_rates_as_written_and_a_word_about_it(root, capsys):
    assert rates(root, dict(log_level='INFO'))[:2] == (2e-3, 2e-3)
    log = capsys.readouterr().out
    assert '4 images an optimiser step' in log
    assert 'peak learning rates: 0.002\n' in log
    assert 'chosen for 32 images' in log


@pytest.mark.parametrize('by_epoch', [True, False])
def test_fewer_images_than_a_batch(root, by_epoch):
    options = {
        'train_dataloader.batch_size': 64,
        'train_dataloader.sampler.infinite': False,
    }
    if by_epoch:
        options |= by_epochs(2) | {
            'param_scheduler.by_epoch': True,
            'param_scheduler.convert_to_iter_based': True,
        }
    with pytest.raises(ValueError) as error:
        rates(root, options)
    assert '48 images' in str(error.value)
    assert 'lower train_dataloader.batch_size' in str(error.value)
