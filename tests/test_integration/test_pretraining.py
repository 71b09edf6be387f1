# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining through the real Runner, configs, tools and image files."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from mmengine.config import Config

from ..distributed import free_port
from ..images import DEMO_CONFIG
from ..runs import (
    NO_VALIDATION,
    demo_runner,
    scalars,
)
from ..tools import ROOT


def train(root, name, **options):
    """The runner after six steps."""
    settings = {
        'train_cfg.max_iters': 6,
        'train_cfg.val_interval': 3,
        'default_hooks.logger.interval': 1,
    }
    runner = demo_runner(root, name, **settings | options)
    runner.train()
    return runner


def test_training_moves_everything_once_a_step(root):
    runner = train(root, 'whole')
    model, steps = runner.model, 6
    assert int(model.codebook.pointer) == steps * 4
    words = model.codebook.words
    torch.testing.assert_close(words.norm(dim=1), torch.ones(256))
    # New words are signed, the initial ones were not.
    assert (words[:24] < 0).any(dim=1).all() and (words[24:] >= 0).all()
    assert 0.4 < float(model.codebook.msd) < 0.7
    assert float(model.codebook.msd) != 0.5
    student, teacher = model.backbone.ln1.weight, model.teacher.ln1.weight
    assert not torch.equal(student, teacher)
    momentum = scalars(runner, 'train/momentum')
    assert len(momentum) == steps
    assert momentum[-1] == pytest.approx(0.99)
    for name in ('loss', 'loss_img', 'loss_loc', 'codebook_perplexity'):
        values = scalars(runner, f'train/{name}')
        assert len(values) == steps and np.isfinite(values).all(), name
    accuracy = scalars(runner, 'val/knn/top1_k20')
    assert len(accuracy) == 2 and (accuracy >= 0).all()


@pytest.fixture
def five_bands(root, tmp_path):
    """Settings to train on TIFF files of five channels."""
    rng = np.random.default_rng(0)
    for index in range(8):
        image = rng.integers(256, size=(60, 80, 5), dtype=np.uint8)
        tifffile.imwrite(tmp_path / f'{index}.tif', image)
    pipeline = Config.fromfile(DEMO_CONFIG).train_pipeline
    pipeline[1].update(color_type='unchanged', imdecode_backend='tifffile')
    kept = ('mmmoca.RandomResizedCrop', 'mmmoca.GaussianBlur', 'RandomFlip')
    views = next(step for step in pipeline if step.type == 'MultiView')
    views.transforms = [
        [step for step in view if step.type in kept]
        for view in views.transforms
    ]
    return {
        'train_dataloader.dataset.data_root': str(tmp_path),
        'train_dataloader.dataset.data_prefix': '',
        'train_dataloader.dataset.pipeline': pipeline,
        'train_cfg.max_iters': 2,
        **NO_VALIDATION,
    }


def test_more_channels(root, five_bands):
    """What README says of them, and what it does not let pass."""
    with pytest.raises(ValueError, match='the images have 5 channels'):
        train(root, 'bands', **five_bands)
    five_bands |= {
        'model.data_preprocessor.mean': [127.5] * 5,
        'model.data_preprocessor.std': [63.75] * 5,
        'model.data_preprocessor.to_rgb': False,
        'model.backbone.in_channels': 5,
    }
    runner = train(root, 'bands', **five_bands)
    projection = runner.model.teacher.patch_embed.projection
    assert projection.in_channels == 5
    assert np.isfinite(scalars(runner, 'train/loss')).all()


@pytest.mark.slow
def test_full_recipe(root, tmp_path):
    """ViT-B/16, K=4096, through the AMP fallback; two steps of four images."""
    folder = root / 'eight'
    shutil.copytree(root / 'train' / 'class_0', folder)
    for path in sorted(folder.iterdir())[8:]:
        path.unlink()
    command = [
        *('tools/dist_train.sh', 'configs/moca_vit-b16_200e.py', '2'),
        *('--work-dir', str(tmp_path), '--no-validate', '--cfg-options'),
        f'train_dataloader.dataset.data_root={folder}',
        'train_dataloader.dataset.data_prefix=',
        'train_dataloader.batch_size=2',
        'train_dataloader.num_workers=0',
        'train_cfg.max_epochs=1',
        'param_scheduler.warmup=0',
        'default_hooks.checkpoint.save_last=False',
        'default_hooks.checkpoint.interval=2',
        'default_hooks.logger.interval=1',
    ]
    environment = os.environ | dict(
        PYTHONPATH=str(ROOT),
        OMP_NUM_THREADS='1',
        PATH=f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        PORT=str(free_port()),
    )
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    losses = re.findall(r' loss: ([\d.]+)', result.stdout)
    assert len(losses) == 2, result.stdout[-3000:]
    assert all(1 < float(loss) < 20 for loss in losses)
