# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Classifiers are trained with fitting data and weights only."""

import shutil

import pytest
from mmengine.runner import Runner

from ..digits import digits_config, save_pretraining, write_digits

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


def listed(root):
    """Lines of an annotation file, one image of each class."""
    folders = sorted((root / 'train').iterdir())
    return [f'{f.name}/{next(f.iterdir()).name} {f.name}' for f in folders]


def refused(root, message, name=LINEAR, test=False, **options):
    """The run ends with this message before it has trained anything."""
    work_dir = root / 'work'
    settings = {
        'load_from': str(root / 'moca.pth'),
        'train_dataloader.batch_size': 25,
    }
    cfg = digits_config(name, root, work_dir, **settings | options)
    runner = Runner.from_cfg(cfg)
    with pytest.raises(ValueError, match=message):
        runner.test() if test else runner.train()
    assert not list(work_dir.glob('*.pth'))


def test_no_checkpoint(digits):
    refused(digits, 'no checkpoint to start from.*load_from=', load_from=None)


def test_nothing_to_resume(digits):
    refused(digits, 'no checkpoint', load_from=None, resume=True)


def test_from_scratch_on_purpose(digits):
    cfg = digits_config(
        LINEAR,
        digits,
        digits / 'work',
        **{
            'train_dataloader.batch_size': 25,
            'train_cfg.max_epochs': 1,
            'default_hooks.classifier_check.needs_checkpoint': False,
        },
    )
    runner = Runner.from_cfg(cfg)
    runner.train()
    assert runner.iter == 3


def test_pretrained_initialisation_is_a_checkpoint(digits):
    init = dict(
        type='Pretrained',
        checkpoint=str(digits / 'moca.pth'),
        prefix='teacher.',
    )
    cfg = digits_config(
        LINEAR,
        digits,
        digits / 'work',
        **{
            'train_dataloader.batch_size': 25,
            'train_cfg.max_epochs': 1,
            'model.backbone.init_cfg': init,
        },
    )
    runner = Runner.from_cfg(cfg)
    runner.train()
    assert runner.model.backbone.patch_embed.projection.weight.any()


def test_one_class(digits):
    for split in ('train', 'val'):
        for label in range(1, 10):
            shutil.rmtree(digits / split / str(label))
    refused(digits, 'one class only.*one folder a class')


def test_classes_differ(digits):
    shutil.move(digits / 'val' / '3', digits / 'val' / 'three')
    message = r'train \(10\) and val images \(10\).*differ: 3, three'
    refused(digits, f'(?i){message}')


def test_class_missing_in_val(digits):
    shutil.rmtree(digits / 'val' / '3')
    refused(digits, '9 classes, but the head has 10')


@pytest.mark.parametrize('number', [9, 1000])
@pytest.mark.parametrize('name', [LINEAR, FINETUNE])
def test_wrong_number_of_classes(digits, name, number):
    options = {'model.head.num_classes': number}
    if name == FINETUNE:
        options['model.data_preprocessor.num_classes'] = number
    message = f'10 classes, but the head has {number}.*num_classes=10'
    refused(digits, message, name, **options)


def test_two_numbers_of_classes(digits):
    options = {'model.data_preprocessor.num_classes': 9}
    refused(digits, 'the same number in both places', FINETUNE, **options)


@pytest.mark.parametrize('label', [10, -1])
@pytest.mark.parametrize('classes', [None, tuple('0123456789')])
def test_label_out_of_range(digits, label, classes):
    lines = listed(digits)
    (digits / 'list.txt').write_text(
        '\n'.join([*lines, f'{lines[0][:-1]}{label}'])
    )
    options = {
        'train_dataloader.dataset.ann_file': str(digits / 'list.txt'),
        'train_dataloader.dataset.metainfo': classes and dict(classes=classes),
    }
    message = 'labels of the train images.*go from'
    if label == 10 and classes is None:
        message = '11 classes, but the head has 10'
    refused(digits, message, **options)


def test_all_of_a_list_in_one_class(digits):
    lines = [line[:-1] + '0' for line in listed(digits)]
    (digits / 'list.txt').write_text('\n'.join(lines))
    options = {
        'train_dataloader.dataset.ann_file': str(digits / 'list.txt'),
        'train_dataloader.dataset.metainfo': dict(classes=tuple('0123456789')),
    }
    refused(digits, 'one class only', **options)


def test_testing_with_a_wrong_number(digits):
    options = {'model.head.num_classes': 9}
    refused(digits, 'the test images.*10 classes', test=True, **options)
