# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""When and how the best classifier of a probe is written."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmpretrain.registry import MODELS

from mmmoca.engine import WinningHeadHook

from ..helpers.digits import digits_config
from ..helpers.probes import FEATURES, build, config

CLASSES = ('a', 'b', 'c', 'd', 'e', 'f')


@pytest.fixture
def runner(tmp_path):
    model = build(**FEATURES['cls'][0])
    return SimpleNamespace(
        model=model,
        cfg=digits_config('linear_vit-b16_100e_in1k.py', '', ''),
        work_dir=str(tmp_path),
        epoch=1,
        iter=10,
        logger=MMLogger.get_current_instance(),
        train_dataloader=SimpleNamespace(
            dataset=SimpleNamespace(metainfo=dict(classes=CLASSES))
        ),
    )


def validate(hook, runner, top1, head=1):
    metrics = {'linear/top1': top1, 'linear/base_lr': 1.0, 'linear/head': head}
    hook.after_val_epoch(runner, metrics)


def load(runner):
    return torch.load(f'{runner.work_dir}/linear_best.pth', weights_only=True)


def test_best_so_far_is_kept(runner, tmp_path):
    hook = WinningHeadHook()
    for epoch, top1 in enumerate((20.0, 60.0, 40.0, 60.0), start=1):
        if epoch == 3:  # a resumed run knows the best result
            hook = WinningHeadHook()
            hook.before_train(runner)
        runner.epoch = epoch
        validate(hook, runner, top1)
    meta = load(runner)['meta']
    assert meta['epoch'] == 2
    assert meta['linear_probe'] == dict(top1=60.0, base_lr=1.0, head=1)
    assert meta['dataset_meta'] == dict(classes=CLASSES)
    vit = runner.model.backbone  # for mmmoca.load
    assert meta['mmmoca']['num_heads'] == vit.arch_settings['num_heads']
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {'linear_best.pth', 'linear_best.py'}
    # A run that resumes from an earlier point ignores a later result.
    runner.iter, hook = 5, WinningHeadHook()
    hook.before_train(runner)
    validate(hook, runner, 30.0)
    assert load(runner)['meta']['linear_probe']['top1'] == 30.0


@pytest.mark.parametrize('features', FEATURES)
def test_exported_classifier(runner, features):
    """MMPreTrain's own parts compute what the best classifier computes."""
    options, head = FEATURES[features][0], len(features) % 2
    runner.model = build(**options)
    runner.cfg.model = ConfigDict(config(**options))
    # The file that the backbone started from is not needed any more.
    init = dict(type='Pretrained', checkpoint='x.pth')
    runner.cfg.model.backbone.init_cfg = init
    validate(WinningHeadHook(), runner, 50.0, head)
    cfg = Config.fromfile(f'{runner.work_dir}/linear_best.py')
    assert cfg.model.type == 'ImageClassifier'
    assert cfg.model.backbone.init_cfg is None
    assert cfg.test_evaluator.topk == (1, 5)
    assert 'mmmoca.ClassCheckHook' in str(cfg.custom_hooks)
    classifier = MODELS.build(cfg.model)
    classifier.load_state_dict(load(runner)['state_dict'])
    images = torch.randn(3, 3, 16, 16)
    expected = runner.model.head(runner.model.extract_feat(images))[:, head]
    torch.testing.assert_close(classifier.eval()(images), expected)
