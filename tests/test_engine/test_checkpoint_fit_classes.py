# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Classifiers are trained with fitting data and weights only."""

import shutil

import pytest
from mmengine.runner import Runner

from ..digits import digits_config, save_pretraining, train, write_digits
from ..runs import assert_same

LINEAR = 'linear_vit-b16_100e_in1k.py'
FINETUNE = 'finetune_vit-b16_100e_in1k.py'
HEAD = 'model.head.num_classes'
MIXUP = 'model.data_preprocessor.num_classes'


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    root = write_digits(tmp_path_factory.mktemp('source') / 'digits', 100)
    save_pretraining(root / 'moca.pth')
    return root


def config(digits, work_dir, name=LINEAR, **options):
    settings = {
        'load_from': str(digits / 'moca.pth'),
        'train_dataloader.batch_size': 25,
    }
    return digits_config(name, digits, work_dir, **settings | options)


@pytest.mark.parametrize(
    ('name', 'stage', 'options', 'message'),
    [
        (LINEAR, 'train', dict(load_from=None), 'load_from='),
        (LINEAR, 'train', dict(load_from=None, resume=True), 'load_from='),
        (LINEAR, 'train', {HEAD: 1000}, 'model.head.num_classes=10'),
        (LINEAR, 'test', {HEAD: 9}, 'model.head.num_classes=10'),
        (FINETUNE, 'train', {HEAD: 10, MIXUP: 9}, f'{MIXUP}=10'),
    ],
)
def test_refused(digits, tmp_path, name, stage, options, message):
    runner = Runner.from_cfg(config(digits, tmp_path, name, **options))
    with pytest.raises(ValueError, match=message):
        getattr(runner, stage)()
    assert not list(tmp_path.glob('*.pth'))


def test_classes_differ(digits, tmp_path):
    root = shutil.copytree(digits, tmp_path / 'digits')
    shutil.move(root / 'val' / '3', root / 'val' / 'three')
    with pytest.raises(ValueError, match='differ: 3, three'):
        Runner.from_cfg(config(root, tmp_path / 'work')).train()


def test_from_scratch_on_purpose(digits, tmp_path):
    hook = 'default_hooks.checkpoint_fit.needs_checkpoint'
    options = {'load_from': None, hook: False}
    assert train(config(digits, tmp_path, **options)).iter == 6


def test_pretrained_initialisation_is_a_checkpoint(digits, tmp_path):
    teacher = save_pretraining(tmp_path / 'moca.pth')
    file = str(tmp_path / 'moca.pth')
    init = dict(type='Pretrained', checkpoint=file, prefix='teacher.')
    options = {'load_from': None, 'model.backbone.init_cfg': init}
    runner = train(config(digits, tmp_path / 'work', **options))
    assert_same(runner.model.backbone.state_dict(), teacher.state_dict())
