# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parts of a step with and without each optimisation."""

import copy
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

import torch
from mmengine.optim import build_optim_wrapper
from torch import Tensor

from measure import median_seconds, print_table
from mmmoca.engine.hooks.teacher_ema_hook import update_teacher
from mmmoca.models import Mask
from mmmoca.models.transformer import attention
from reference_step import ATTENTIONS, embed_all_then_gather, update_in_a_loop
from training_step import MOMENTUM, TrainingStep

Forms = dict[str, Callable[[], object]]


def print_pairs(args: Namespace, step: TrainingStep) -> None:
    """Measure each pair in turns and print the table."""
    rows = []
    for part, forms in pairs(args, step):
        seconds = median_seconds(forms, args.repeats)
        first = next(iter(seconds.values()))
        rows += [
            (part, form, f'{value * 1e3:.1f}', f'{value / first:.2f}x')
            for form, value in seconds.items()
        ]
    print_table(
        f'With and without, {args.title}',
        ('part', 'form', 'ms', 'against the first'),
        rows,
    )


def pairs(args: Namespace, step: TrainingStep) -> Iterator[tuple[str, Forms]]:
    """What is compared and its forms, ours first.

    The objective has a command of its own, objective.py. Forms are freed
    with each pair, so none may be kept.
    """
    if args.compile:
        yield 'step', {'compiled': step, 'eager': TrainingStep(**args.step)}
    views = 2 * step.batch_size
    masks = step.model.masking.draw(views, step.device)
    yield 'patch embedding, all rounds', _patch_embedding(step, masks)
    yield 'EMA', _ema(step)
    yield 'AdamW', _optimisers(step)
    yield 'attention, student, bf16', _attention(step, masks[0])


def _patch_embedding(step: TrainingStep, masks: list[Mask]) -> Forms:
    backbone = step.model.backbone
    shape = (2 * step.batch_size, 3, *backbone.img_size)
    images = torch.randn(shape, device=step.device)

    def run(embed: Callable[[Tensor, Tensor], Tensor]) -> None:
        with step.wrapper.optim_context(step.model):
            rounds = [embed(images, mask.visible) for mask in masks]
            loss = sum(x.float().sum() for x in rounds)
        loss.backward()
        step.model.zero_grad()

    all_then_gather = partial(embed_all_then_gather, backbone)
    return {
        'visible patches': partial(run, backbone._embed_patches),
        'all, then gather': partial(run, all_then_gather),
    }


def _ema(step: TrainingStep) -> Forms:
    models = copy.deepcopy(step.model.teacher), step.model.backbone
    return {
        'one foreach lerp': partial(update_teacher, *models, MOMENTUM),
        'loop': partial(update_in_a_loop, *models, MOMENTUM),
    }


def _optimisers(step: TrainingStep) -> Forms:
    for parameter in step.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.full_like(parameter, 1e-6)
    forms = {}
    for groups in ('4 groups', 'a group a parameter'):
        for fused in (True, None):
            cfg = copy.deepcopy(step.wrapper_cfg)
            # Nothing may move: the forms share the parameters.
            cfg.optimizer.update(fused=fused, lr=0.0)
            cfg.paramwise_cfg.prototype_lr = 0.0
            if groups != '4 groups':
                cfg.constructor = 'DefaultOptimWrapperConstructor'
                cfg.paramwise_cfg = dict(norm_decay_mult=0, bias_decay_mult=0)
            optimizer = build_optim_wrapper(step.model, cfg).optimizer
            name = f'{"fused" if fused else "default"}, {groups}'
            forms[name] = optimizer.step
    return forms


def _attention(step: TrainingStep, mask: Mask) -> Forms:
    settings = step.model.backbone.arch_settings
    heads = settings['num_heads']
    views, tokens = mask.visible.shape
    q, k, v = torch.randn(
        *(3, views, heads, 1 + tokens, settings['embed_dims'] // heads),
        device=step.device,
        dtype=torch.bfloat16,
    )

    def run(function: Callable) -> None:
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        function(*leaves).backward(v)

    forms = {'ours': attention, **ATTENTIONS}
    return {name: partial(run, function) for name, function in forms.items()}
