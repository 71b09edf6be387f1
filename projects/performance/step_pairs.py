# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parts of a step with and without each optimisation."""

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch
from mmengine.optim import build_optim_wrapper
from mmpretrain.models.backbones.vision_transformer import (
    TransformerEncoderLayer,
)
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmmoca.engine.hooks.teacher_ema_hook import update_teacher
from mmmoca.models import Mask
from mmmoca.models.transformer import attention
from objective_forms import FORMS, forward_and_backward, make_inputs
from reference_step import embed_all_then_gather
from training_step import MOMENTUM, TrainingStep

Forms = dict[str, Callable[[], object]]


def pairs(step: TrainingStep) -> Iterator[tuple[str, Forms]]:
    """What is compared and its forms, ours first.

    Args:
        step (TrainingStep): Gives modules, masks and precision.

    Yields:
        tuple[str, dict[str, Callable]]: Forms are freed with each pair, so
        none may be kept.
    """
    views = 2 * step.batch_size
    masks = step.model.masking.draw(views, step.device)
    yield 'patch embedding, all rounds', _patch_embedding(step, masks)
    yield 'EMA', _ema(step)
    yield 'AdamW', _optimisers(step)
    patches = step.model.masking.num_patches
    for what, tokens, backward in (
        ('attention, teacher', patches, False),
        ('attention, student', masks[0].visible.shape[1], True),
    ):
        yield f'{what}, bf16', _attention(step, tokens + 1, backward)
    yield 'transformer layer, student', _layer(step, masks[0])
    yield 'prototypes', _prototypes(step, len(masks))
    yield "objective, ViT-B's shapes", _objective(step)


def _in_precision(step: TrainingStep, function: Callable[[], Tensor]):
    """Forward in the step's precision and backward, gradients dropped."""

    def run() -> None:
        with step.wrapper.optim_context(step.model):
            loss = function()
        loss.backward()
        step.model.zero_grad()

    return run


def _patch_embedding(step: TrainingStep, masks: list[Mask]) -> Forms:
    backbone = step.model.backbone
    shape = (2 * step.batch_size, 3, *backbone.img_size)
    images = torch.randn(shape, device=step.device)

    def visible_only() -> Tensor:
        return sum(
            backbone._embed_patches(images, mask.visible).float().sum()
            for mask in masks
        )

    def all_then_gather() -> Tensor:
        return sum(
            embed_all_then_gather(backbone, images, mask.visible).float().sum()
            for mask in masks
        )

    return {
        'visible patches': _in_precision(step, visible_only),
        'all, then gather': _in_precision(step, all_then_gather),
    }


def _ema(step: TrainingStep) -> Forms:
    student = step.model.backbone
    teacher = copy.deepcopy(step.model.teacher)

    @torch.no_grad()
    def loop() -> None:
        for target, source in zip(teacher.parameters(), student.parameters()):
            if source.requires_grad:
                target.mul_(MOMENTUM).add_(source, alpha=1 - MOMENTUM)

    return {
        'one foreach lerp': lambda: update_teacher(teacher, student, MOMENTUM),
        'loop of mul_ and add_': loop,
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


def _attention(step: TrainingStep, tokens: int, backward: bool) -> Forms:
    settings = step.model.backbone.arch_settings
    heads = settings['num_heads']
    width = settings['embed_dims'] // heads
    shape = 2 * step.batch_size, heads, tokens, width
    q, k, v = torch.randn(
        3, *shape, device=step.device, dtype=torch.bfloat16
    ).unbind()

    def run(function: Callable, *kernels: SDPBackend) -> None:
        leaves = [x.detach().requires_grad_(backward) for x in (q, k, v)]
        with sdpa_kernel(list(kernels)) if kernels else nullcontext():
            result = function(*leaves)
        if backward:
            result.backward(v)

    pytorchs = F.scaled_dot_product_attention
    fused = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
    return {
        'ours': lambda: run(attention),
        "PyTorch's fused kernel": lambda: run(pytorchs, *fused),
        "PyTorch's unfused kernel": lambda: run(pytorchs, SDPBackend.MATH),
    }


def _layer(step: TrainingStep, mask: Mask) -> Forms:
    backbone = step.model.backbone
    names = 'embed_dims', 'num_heads', 'feedforward_channels'
    stock = TransformerEncoderLayer(
        *(backbone.arch_settings[name] for name in names)
    ).to(step.device)
    # The attention's kernel stays ours: it has a line of its own.
    stock.attn.scaled_dot_product_attention = attention
    views, tokens = mask.visible.shape
    x = torch.randn(
        *(views, 1 + tokens, backbone.embed_dims),
        device=step.device,
        requires_grad=True,
    )
    return {
        'lean': _in_precision(step, lambda: backbone.layers[0](x).sum()),
        "mmpretrain's": _in_precision(step, lambda: stock(x).sum()),
    }


def _prototypes(step: TrainingStep, rounds: int) -> Forms:
    words, head = step.model.codebook.words, step.model.head
    generators = head.img_generator, head.loc_generator

    def times(count: int) -> Callable[[], None]:
        def forward() -> Tensor:
            made = [generate(words) for generate in generators * count]
            return sum(prototypes[:, 0].sum() for prototypes in made)

        return _in_precision(step, forward)

    return {'once a step': times(1), 'once a round': times(rounds)}


def _objective(step: TrainingStep) -> Forms:
    num_words = len(step.model.codebook.words)
    inputs = make_inputs(step.batch_size, num_words, step.device)
    return {
        form: partial(forward_and_backward, FORMS[form], inputs)
        for form in ('lean', 'straightforward')
    }
