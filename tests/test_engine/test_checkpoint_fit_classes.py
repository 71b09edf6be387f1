# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Classifiers are trained with fitting data and weights only."""

import shutil

import pytest
import torch
from mmengine.runner import Runner

from mmmoca.checkpoints import CheckpointError

from ..digits import digits_config, save_pretraining, train, write_digits

LINEAR = 'linear_vit-b16_100e_in1k.py'
FINETUNE = 'finetune_vit-b16_100e_in1k.py'


@pytest.fixture(scope='module')
def source(tmp_path_factory):
    root = write_digits(tmp_path_factory.mktemp('source') / 'digits', 100)
    save_pretraining(root / 'moca.pth')
    return root


@pytest.fixture
def digits(source, tmp_path):
    root = tmp_path / 'digits'
    shutil.copytree(source, root)
    return root


def config(root, name=LINEAR, **options):
    settings = {
        'load_from': str(root / 'moca.pth'),
        'train_dataloader.batch_size': 25,
    }
    return digits_config(name, root, root / 'work', **settings | options)


def refused(root, message, name=LINEAR, test=False, **options):
    """The run ends with this message before it has trained anything."""
    runner = Runner.from_cfg(config(root, name, **options))
    with pytest.raises(ValueError, match=message):
        runner.test() if test else runner.train()
    assert not list((root / 'work').glob('*.pth'))


@pytest.mark.parametrize('resume', [False, True])
def test_no_checkpoint(source, resume):
    message = 'no checkpoint to start from.*load_from='
    refused(source, message, load_from=None, resume=resume)


def test_from_scratch_on_purpose(digits):
    hook = 'default_hooks.checkpoint_fit.needs_checkpoint'
    runner = train(config(digits, **{'load_from': None, hook: False}))
    assert runner.iter == 6


def test_pretrained_initialisation_is_a_checkpoint(digits):
    """It is checked in time, after the hooks and before any training."""
    init = dict(type='Pretrained', checkpoint=str(digits / 'moca.pth'))
    options = {'load_from': None, 'model.backbone.init_cfg': init}
    with pytest.raises(CheckpointError, match=r"write prefix='teacher\."):
        train(config(digits, **options))
    init['prefix'] = 'teacher.'
    cfg = config(digits, **options, log_level='INFO')
    backbone = train(cfg).model.backbone.state_dict()
    saved = torch.load(init['checkpoint'], weights_only=True)['state_dict']
    for name, value in backbone.items():
        assert torch.equal(value, saved[f'teacher.{name}']), name
    logs = [log.read_text() for log in (digits / 'work').glob('*/*.log')]
    total = len(backbone)
    assert any(f'{total} of its {total} names match' in log for log in logs)


def test_classes_differ(digits):
    shutil.move(digits / 'val' / '3', digits / 'val' / 'three')
    message = r'train \(10\) and val images \(10\).*differ: 3, three'
    refused(digits, f'(?i){message}')


@pytest.mark.parametrize(
    ('name', 'head', 'augments', 'wrong'),
    [(LINEAR, 1000, None, 'head'), (FINETUNE, 10, 9, 'data_preprocessor')],
)
def test_wrong_number_of_classes(source, name, head, augments, wrong):
    options = {'model.head.num_classes': head}
    if augments is not None:
        options['model.data_preprocessor.num_classes'] = augments
    refused(source, f'model.{wrong}.num_classes=10', name, **options)


def test_testing_with_a_wrong_number(source):
    options = {'model.head.num_classes': 9}
    refused(source, 'model.head.num_classes=10', test=True, **options)
