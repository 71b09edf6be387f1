# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining through the real Runner, configs, tools and image files."""

import copy
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
from mmengine.runner import Runner

from ..distributed import free_port
from ..images import demo_config, write_images

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp('images')
    write_images(root)
    return root


def config(images, work_dir, **options):
    settings = {
        'train_cfg.max_iters': 6,
        'train_cfg.val_interval': 3,
        'default_hooks.checkpoint.interval': 3,
        'default_hooks.checkpoint.max_keep_ckpts': 5,
        'default_hooks.logger.interval': 1,
    }
    return demo_config(images, work_dir, **settings | options)


def run(cfg):
    cfg = copy.deepcopy(cfg)
    cfg.experiment_name = f'run{np.random.default_rng().integers(1 << 40)}'
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner


def scalars(runner, name):
    return runner.message_hub.get_scalar(name).data[0]


def test_training_moves_everything_once_a_step(images, tmp_path):
    runner = run(config(images, tmp_path))
    model, steps = runner.model, 6
    assert int(model.codebook.pointer) == steps * 4
    initial = Runner.from_cfg(config(images, tmp_path / 'init'))
    initial.model.init_weights()
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
    assert momentum[-1] == pytest.approx(1)
    for name in ('loss', 'loss_img', 'loss_loc', 'codebook_perplexity'):
        values = scalars(runner, f'train/{name}')
        assert len(values) == steps and np.isfinite(values).all(), name
    accuracy = scalars(runner, 'val/knn/top1_k20')
    assert len(accuracy) == 2 and (accuracy >= 0).all()


def test_gradient_accumulation_steps_once(images, tmp_path):
    cfg = config(
        images,
        tmp_path,
        **{
            'optim_wrapper.accumulative_counts': 2,
            'train_dataloader.batch_size': 2,
        },
    )
    runner = run(cfg)
    assert int(runner.model.codebook.pointer) == 3 * 4
    assert len(scalars(runner, 'train/momentum')) == 3


@pytest.mark.slow
def test_compiled_training(images, tmp_path):
    """The same losses, through MMEngine's own switch."""
    losses = []
    for options in ({}, {'compile': dict(backend='aot_eager')}):
        name = 'compiled' if options else 'eager'
        options['train_cfg.max_iters'] = 2
        runner = run(config(images, tmp_path / name, **options))
        losses.append(scalars(runner, 'train/loss'))
    # The first step is the same; bf16 rounds the second one otherwise.
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-4)
    assert losses[0][1] == pytest.approx(losses[1][1], rel=1e-2)


@pytest.fixture
def five_bands(tmp_path):
    """Settings to train on TIFF files of five channels."""
    rng = np.random.default_rng(0)
    folder = tmp_path / 'bands'
    folder.mkdir()
    for index in range(8):
        image = rng.integers(256, size=(60, 80, 5), dtype=np.uint8)
        tifffile.imwrite(folder / f'{index}.tif', image)
    cfg = config(folder, tmp_path)
    pipeline = cfg.train_dataloader.dataset.pipeline
    pipeline[1].update(color_type='unchanged', imdecode_backend='tifffile')
    kept = ('mmmoca.RandomResizedCrop', 'mmmoca.GaussianBlur', 'RandomFlip')
    views = next(step for step in pipeline if step.type == 'MultiView')
    views.transforms = [
        [step for step in view if step.type in kept]
        for view in views.transforms
    ]
    return {
        'train_dataloader.dataset.data_root': str(folder),
        'train_dataloader.dataset.data_prefix': '',
        'train_dataloader.dataset.pipeline': pipeline,
        'train_cfg.max_iters': 2,
        'val_cfg': None,
        'val_dataloader': None,
        'val_evaluator': None,
    }


def test_more_channels(five_bands, tmp_path):
    """What README says of them, and what it does not let pass."""
    cfg = config(tmp_path / 'bands', tmp_path, **five_bands)
    with pytest.raises(ValueError, match='the images have 5 channels'):
        run(cfg)
    cfg.model.data_preprocessor.update(
        mean=[127.5] * 5, std=[63.75] * 5, to_rgb=False
    )
    cfg.model.backbone.in_channels = 5
    runner = run(cfg)
    projection = runner.model.teacher.patch_embed.projection
    assert projection.in_channels == 5
    assert np.isfinite(scalars(runner, 'train/loss')).all()


def test_batch_smaller_than_the_new_words(images, tmp_path):
    cfg = config(images, tmp_path, **{'train_dataloader.batch_size': 3})
    with pytest.raises(ValueError, match='num_new_words=4'):
        run(cfg)


def launch(*command, **environment):
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        OMP_NUM_THREADS='1',
        PATH=f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        **environment,
    )
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, output[-3000:]
    return output


@pytest.mark.slow
def test_full_recipe(images, tmp_path):
    """ViT-B/16, K=4096, through the AMP fallback; two steps of four images."""
    folder = images / 'eight'
    shutil.copytree(images / 'train' / 'class_0', folder)
    for path in sorted(folder.iterdir())[8:]:
        path.unlink()
    output = launch(
        *('tools/dist_train.sh', str(ROOT / 'configs/moca_vit-b16_200e.py')),
        *('2', '--work-dir', str(tmp_path), '--no-validate', '--cfg-options'),
        f'train_dataloader.dataset.data_root={folder}',
        'train_dataloader.dataset.data_prefix=',
        'train_dataloader.batch_size=2',
        'train_dataloader.num_workers=0',
        'train_cfg.max_epochs=1',
        'param_scheduler.warmup=0',
        'default_hooks.checkpoint.save_last=False',
        'default_hooks.checkpoint.interval=2',
        'default_hooks.logger.interval=1',
        PORT=str(free_port()),
    )
    losses = re.findall(r' loss: ([\d.]+)', output)
    assert len(losses) == 2, output[-3000:]
    assert all(1 < float(loss) < 20 for loss in losses)
