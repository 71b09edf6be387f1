# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Training, validation, test and pictures with the small config."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.runner import Runner

from ..helpers.checkpoint_files import assert_goes_on, from_file, token_vit
from ..helpers.runs import assert_same, scalars, state_of
from ..helpers.shapes import SHAPES_CONFIG, shapes_config
from ..helpers.tools import run_tool as tool

pytestmark = pytest.mark.ops
EPOCHS, LAST = 5, 'iter_15.pth'


def run(cfg):
    cfg.experiment_name = f'run{np.random.default_rng().integers(1 << 40)}'
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner


OPTIONS = {
    'train_cfg.max_epochs': EPOCHS,
    'train_cfg.val_interval': EPOCHS,
    'param_scheduler': [],
    'model.backbone.drop_path_rate': 0.1,
    'randomness': dict(seed=0),
    'default_hooks.logger.interval': 1,
    'default_hooks.checkpoint.by_epoch': False,
    'default_hooks.checkpoint.interval': 10,
}


@pytest.fixture(scope='module')
def trained(shapes, tmp_path_factory):
    """Train for a few epochs; return the runner and its folder."""
    work_dir = tmp_path_factory.mktemp('trained')
    return run(shapes_config(shapes, work_dir, **OPTIONS)), work_dir


def test_resumes_within_an_epoch(trained, shapes, tmp_path):
    runner, work_dir = trained
    start = {
        'resume': True,
        'load_from': str(work_dir / 'iter_10.pth'),
        'train_dataloader.num_workers': 2,
    }
    resumed = run(shapes_config(shapes, tmp_path, **OPTIONS | start))
    assert resumed.iter == runner.iter == EPOCHS * 3
    assert_same(state_of(resumed), state_of(runner))


def test_losses_fall(trained):
    runner, _ = trained
    losses = scalars(runner, 'train/loss')
    assert len(losses) == EPOCHS * 3 and np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


def test_tool_tests_the_checkpoint(trained, shapes, tmp_path):
    """tools/test.py finds the metrics of the training's last validation."""
    runner, work_dir = trained
    metrics = tmp_path / 'metrics.json'
    command = (
        f'tools/test.py {SHAPES_CONFIG} {work_dir}/{LAST} --work-dir '
        f'{tmp_path} --out {metrics} --out-item metrics '
        f'--show-dir {tmp_path}/drawn --cfg-options visualizer.name=test '
        f'test_dataloader.dataset.data_root={shapes} '
        f'test_evaluator.ann_file={shapes}/annotations/train.json'
    )
    tool(*command.split())
    found = json.loads(metrics.read_text())
    for name in ('coco/bbox_mAP', 'coco/bbox_mAP_50', 'coco/segm_mAP'):
        assert found[name] == scalars(runner, f'val/{name}')[-1], name
    drawn = {path.name for path in tmp_path.glob('drawn/*.*')}
    rows = runner.val_dataloader.dataset
    assert drawn == {
        Path(row['img_path']).name
        for row in map(rows.get_data_info, range(len(rows)))
    }


def test_mmdet_draws_predictions(trained, shapes, tmp_path):
    """mmdet draws with a run's config, as docs/guides/detect.md shows."""
    from mmdet.apis import DetInferencer

    _, work_dir = trained
    (config,) = work_dir.glob('*.py')
    checkpoint = work_dir / LAST
    inferencer = DetInferencer(str(config), str(checkpoint), device='cpu')
    image = shapes / 'val' / '000000.jpg'
    inferencer(str(image), out_dir=str(tmp_path), pred_score_thr=0)
    original = cv2.imread(str(image))
    drawn = cv2.imread(str(tmp_path / 'vis' / image.name))
    changed = np.abs(drawn.astype(int) - original).max(2) > 60
    assert changed.mean() > 0.005


def test_starts_from_a_file_of_dinov3(shapes, tmp_path):
    """The run has three iterations and a validation."""
    vit = token_vit('DINOv3ViT', depth=4, patch_size=16)
    torch.save(vit.state_dict(), tmp_path / 'vit.pth')
    start = from_file('DINOv3ViT', tmp_path / 'vit.pth', _delete_=True)
    start['model.backbone.arch.num_heads'] = 2
    once = {f'train_cfg.{key}': 1 for key in ('max_epochs', 'val_interval')}
    cfg = shapes_config(shapes, tmp_path, **OPTIONS | start | once)
    runner = run(cfg)
    losses = scalars(runner, 'train/loss')
    assert len(losses) == 3 and np.isfinite(losses).all()
    assert len(scalars(runner, 'val/coco/bbox_mAP')) == 1
    assert_goes_on(runner, vit)
