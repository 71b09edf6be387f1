# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Learning rates follow the images of an optimiser step."""

import pytest

from ..distributed import run_processes
from ..images import write_images
from .test_step_log_hook import build


class Stop(Exception):
    """Raised where the training would begin."""


def rates(root, name='rates', **options):
    """Rates before the first step: main group, prototypes, the logged base."""
    options = {'train_dataloader.batch_size': 4, 'val_cfg': None} | options
    options |= dict(val_dataloader=None, val_evaluator=None)
    runner = build(root, name, **options)

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


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp('batch_size')
    write_images(root, train=4, val=1)  # 12 images
    return root


SCALED = {'auto_scale_lr.enable': True}  # of 2e-3 for 64 images


@pytest.mark.parametrize('micro_batches', [1, 4])
def test_rates_follow_the_images(root, micro_batches):
    options = {'optim_wrapper.accumulative_counts': micro_batches}
    main, prototypes, base = rates(root, **SCALED | options)
    expected = 2e-3 * 4 * micro_batches / 64
    assert main == pytest.approx(expected, rel=1e-12)
    assert base == pytest.approx(expected, rel=1e-12)
    assert prototypes == pytest.approx(2e-3, rel=1e-12)


def on_ranks(root):
    options = {
        'optim_wrapper.accumulative_counts': 4,
        'launcher': 'pytorch',
        'model_wrapper_cfg': dict(
            type='MMDistributedDataParallel', device_ids=None
        ),
    }
    return rates(root, 'ranks', **SCALED | options)


@pytest.mark.processes
def test_all_processes_count(root):
    for main, prototypes, _ in run_processes(on_ranks, 2, str(root)):
        assert main == pytest.approx(2e-3 * 2 * 4 * 4 / 64, rel=1e-12)
        assert prototypes == pytest.approx(2e-3, rel=1e-12)


def test_rates_as_written_and_a_word_about_it(root, capsys):
    options = dict(log_level='INFO')
    assert rates(root, 'told', **options)[:2] == (2e-3, 2e-3)
    log = capsys.readouterr().out
    assert '4 images an optimiser step' in log
    assert 'peak learning rates: 0.002\n' in log
    assert 'chosen for 64 images' in log


@pytest.mark.parametrize('by_epoch', [True, False])
def test_fewer_images_than_a_batch(root, by_epoch):
    options = {
        'train_dataloader.batch_size': 16,
        'train_dataloader.sampler.infinite': False,
    }
    if by_epoch:
        options['train_cfg'] = dict(
            _delete_=True, type='EpochBasedTrainLoop', max_epochs=2
        )
        options['param_scheduler'] = dict(
            _delete_=True,
            type='mmmoca.WarmupCosineLR',
            warmup=1,
            convert_to_iter_based=True,
        )
    with pytest.raises(ValueError) as error:
        rates(root, **options)
    message = str(error.value)
    assert '12 of the 12 training images' in message
    assert 'a batch of 16' in message
    assert 'train_dataloader.batch_size=12' in message
