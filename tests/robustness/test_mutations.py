# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files with one damaged part give a good result or one clear error."""

import random

import pytest
import torch

import mmmoca
from mmmoca.checkpoints import CheckpointError, read_checkpoint
from mmmoca.engine import AtomicCheckpointHook
from mmmoca.engine.mmengine import load_address, set_load_address

from ..helpers.checkpoint_files import mm_vit, timm_vit, token_vit
from ..helpers.mutations import mutate
from ..helpers.runs import NO_VALIDATION, assert_same, demo_runner, tiny_run

pytestmark = pytest.mark.slow


def test_a_run_goes_on_from_a_checkpoint_that_is_whole(root):
    """A run resumes from the newest checkpoint that can be used as a whole."""
    options = {
        'train_cfg.max_iters': 4,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': 2,
        'model.codebook.num_words': 64,
        # The checkpoint has few tensors, because it is read many times.
        'model.neck': None,
        'model.head.lambda_img': 1.0,
        'model.backbone.tap_layer': None,
        'train_dataloader.batch_size': 4,
    }
    options = tiny_run() | NO_VALIDATION | options
    del options['model.neck.embed_dims']
    options['model.backbone.arch']['num_layers'] = 1
    demo_runner(root, 'mutated', **options).train()
    folder = root / 'mutated'
    newest = torch.load(folder / 'iter_4.pth', weights_only=True)
    older = read_checkpoint(folder / 'iter_2.pth')['state_dict']
    options |= dict(resume=True, experiment_name='mutated')
    runner = demo_runner(root, 'mutated', **options)
    runner.train()
    (hook,) = [h for h in runner.hooks if isinstance(h, AtomicCheckpointHook)]
    taken = []
    for seed in range(20):
        content, what = mutate(newest, random.Random(seed))
        torch.save(content, folder / 'iter_4.pth')
        set_load_address(runner, None)
        hook._passed.clear()
        hook.before_run(runner)
        hook.after_run(runner)
        runner.resume(load_address(runner))
        if hook._taken.name == 'iter_2.pth':
            assert_same(runner.model.state_dict(), older)
        taken.append((runner.iter, hook._taken.name))
        for parameter in runner.model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        runner.optim_wrapper.optimizer.step()
    assert {*taken} == {(2, 'iter_2.pth'), (4, 'iter_4.pth')}, what


ENCODERS = dict(
    timm=lambda: timm_vit().state_dict(),
    mmpretrain=lambda: mm_vit().state_dict(),
    dinov2=lambda: token_vit('RegisterViT', patch_size=14).state_dict(),
    dinov3=lambda: token_vit('DINOv3ViT').state_dict(),
)


@pytest.mark.parametrize('layout', ENCODERS)
def test_a_damaged_encoder_is_one_error(tmp_path, layout):
    """A damaged file gives an encoder or one clear error, but no crash."""
    whole = dict(state_dict=ENCODERS[layout]())
    whole['meta'] = dict(mmmoca=dict(num_heads=2, grid=[4, 4]))
    path, errors = tmp_path / 'a.pth', 0
    for seed in range(12):
        content, what = mutate(whole, random.Random(seed))
        torch.save(content, path)
        try:
            encoder = mmmoca.load(path, device='cpu')
            encoder(torch.zeros(1, 3, *encoder.preprocessing.img_size))
        except CheckpointError as error:
            assert str(path) in str(error), what
            errors += 1
    assert 2 < errors < 12
