# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A test must have the classes that the head was trained on."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from mmengine.dataset import ConcatDataset
from mmengine.registry import DATASETS
from mmengine.structures import PixelData
from mmpretrain.structures import DataSample
from torch import nn
from torch.utils.data import DataLoader

from mmmoca.engine import ClassCheckHook
from mmmoca.evaluation.loaders import class_names

from ..helpers.frozen import PooledPixels, draw, folder_loader, toy_runner


class Model(PooledPixels):
    """A model that predicts nothing."""

    def forward(self, inputs, data_samples=None, mode='tensor'):
        if mode == 'predict':
            return data_samples
        return super().forward(inputs, data_samples, mode)


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp('images')
    draw(root, (1, 1, 2), 0)
    return root


def run(
    images, folder, part, trained, tested, stage='test', validated='', test=()
):
    """Run a model of three classes from a checkpoint."""
    model = Model()
    head = nn.Identity()
    head.num_classes = 3
    setattr(model, part, head)
    file = folder / 'a.pth'
    meta = dict(dataset_meta=dict(classes=[*trained]))
    torch.save(dict(state_dict=model.state_dict(), meta=meta), file)
    classes = dict(metainfo=dict(classes=[*tested])) if tested else {}
    loader = folder_loader(images, with_label=False, **classes)
    options = dict(
        train=dict(
            train_cfg=dict(by_epoch=True, max_epochs=1),
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        ),
        test=dict(test_cfg={}, test_evaluator=[*test]),
    )[stage]
    options[f'{stage}_dataloader'] = loader
    if validated:
        classes = dict(metainfo=dict(classes=[*validated]))
        validation = folder_loader(images, with_label=False, **classes)
        options |= dict(val_dataloader=validation, val_cfg={})
        options |= dict(val_evaluator=[])
    runner = toy_runner(
        model,
        work_dir=str(folder),
        load_from=str(file),
        custom_hooks=[dict(type='mmmoca.ClassCheckHook')],
        **options,
    )
    getattr(runner, stage)()


@pytest.mark.parametrize('part', ['head', 'decode_head'])
@pytest.mark.parametrize(
    'trained, tested',
    [('abc', 'bcd'), ('abc', 'acb'), ('abc', 'ab'), ('ab', 'abc')],
)
def test_other_classes(images, tmp_path, part, trained, tested):
    with pytest.raises(ValueError, match='class'):
        run(images, tmp_path, part, trained, tested)
    run(images, tmp_path, 'neck', trained, tested)
    if len(tested) == 3:  # a training may have another head
        run(images, tmp_path, part, trained, tested, 'train')


def test_parts_of_other_classes(images, tmp_path):
    """MMEngine joins data sets even if their classes differ in order."""
    one, other = (
        DATASETS.build(
            folder_loader(images, metainfo=dict(classes=[*names]))['dataset']
        )
        for names in ('abc', 'acb')
    )
    both = ConcatDataset([one, other], ignore_keys='classes')
    with pytest.raises(ValueError, match='class'):
        class_names(DataLoader(both))
    assert class_names(DataLoader(ConcatDataset([one, one]))) == (*'abc',)
    assert class_names(DataLoader([1])) == ()


@pytest.mark.parametrize('part', ['head', 'roi_head'])
def test_a_validation_of_other_classes(images, tmp_path, part):
    run(images, tmp_path, part, 'abc', 'abc', 'train', 'abc')
    with pytest.raises(ValueError, match='class'):
        run(images, tmp_path, part, 'abc', 'abc', 'train', 'acb')


def test_more_answers_than_classes(images, tmp_path):
    names = 'head', 'abc', 'abc'
    accuracy = dict(type='Accuracy', topk=(1, 4))
    with pytest.raises(ValueError, match='topk'):
        run(images, tmp_path, *names, test=[accuracy])


@pytest.mark.parametrize(
    'trained, tested',
    [
        ('abc', 'abc'),
        ('', 'abc'),
        ('abc', ''),
    ],  # '': no names
)
def test_the_same_classes(images, tmp_path, trained, tested):
    run(images, tmp_path, 'head', trained, tested)


@pytest.mark.parametrize('stage', ['val', 'test'])
@pytest.mark.parametrize(
    ('labels', 'ignored', 'right'),
    [((0, 2, 255), 255, True), ((3, 0), 255, False), ((0, 9), 9, True)],
)
def test_masks_with_labels_of_no_class(images, stage, labels, ignored, right):
    """A label of no class is refused: mmseg's metric would skip its pixels."""
    model = Model()
    model.decode_head = nn.Identity()
    model.decode_head.ignore_index = ignored
    classes = SimpleNamespace(metainfo=dict(classes=[*'abc']))
    loop = SimpleNamespace(dataloader=SimpleNamespace(dataset=classes))
    runner = SimpleNamespace(model=model, val_loop=loop, test_loop=loop)
    sample = DataSample(metainfo=dict(img_path='a.jpg'))
    sample.gt_sem_seg = PixelData(data=torch.tensor([[labels]]))
    check = getattr(ClassCheckHook(), f'after_{stage}_iter')
    with nullcontext() if right else pytest.raises(ValueError, match='a.jpg'):
        check(runner, 0, {}, [sample, DataSample()])
