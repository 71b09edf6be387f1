# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Classifiers are trained with fitting data and weights only."""

import shutil

import pytest
from mmengine.runner import Runner

from ..helpers.digits import digits_config, write_digits

LINEAR = 'linear_vit-b16_100e_in1k.py'
FINETUNE = 'finetune_vit-b16_100e_in1k.py'
HEAD = 'model.head.num_classes'
MIXUP = 'model.data_preprocessor.num_classes'


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp('source') / 'digits', 100)


@pytest.mark.parametrize(
    ('name', 'stage', 'options', 'message'),
    [
        (LINEAR, 'train', {}, 'load_from='),
        (LINEAR, 'test', {HEAD: 9}, f'{HEAD}=10'),
        (FINETUNE, 'train', {MIXUP: 9}, f'{MIXUP}=10'),
    ],
)
def test_refused(digits, tmp_path, name, stage, options, message):
    runner = Runner.from_cfg(digits_config(name, digits, tmp_path, **options))
    with pytest.raises(ValueError, match=message):
        getattr(runner, stage)()
    assert not list(tmp_path.glob('*.pth'))


def test_classes_differ(digits, tmp_path):
    root = shutil.copytree(digits, tmp_path / 'digits')
    shutil.move(root / 'val' / '3', root / 'val' / 'three')
    with pytest.raises(ValueError, match='differ: 3, three'):
        Runner.from_cfg(digits_config(LINEAR, root, tmp_path)).train()
