# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Small checkpoint files in the layouts that are around."""

from argparse import Namespace

import torch
from mmengine.config import Config
from mmpretrain.models.backbones import VisionTransformer
from timm.models.vision_transformer import VisionTransformer as TimmViT

SIZE, PATCH, DIMS, DEPTH, HEADS = 32, 8, 24, 2, 3
LAYOUTS = (
    'mmmoca',
    'moca',
    'mmpretrain',
    'classifier',
    'dino',
    'dino-backbone',
    'ibot-backbone',
    'mae',
    'msn',
    'mocov3',
    'deit',
    'timm',
)
PAIRED = ('mmmoca', 'moca', 'dino', 'msn', 'mocov3')


def randomise(model, seed):
    """Move every parameter off its initial value, norms included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.1 * noise)
    model.eval()  # which mmpretrain's models do not return
    return model


def timm_vit(seed=0, img_size=SIZE, **kwargs):
    """A small ViT of timm that ends in its final norm."""
    kwargs = dict(num_classes=0, dynamic_img_size=True) | kwargs
    torch.manual_seed(seed)
    return randomise(
        TimmViT(
            img_size=img_size,
            patch_size=PATCH,
            embed_dim=DIMS,
            depth=DEPTH,
            num_heads=HEADS,
            **kwargs,
        ),
        seed,
    )


def mm_config(img_size=SIZE, **kwargs):
    """Config of the same ViT in mmpretrain."""
    return dict(
        type='mmpretrain.VisionTransformer',
        arch=dict(
            embed_dims=DIMS,
            num_layers=DEPTH,
            num_heads=HEADS,
            feedforward_channels=4 * DIMS,
        ),
        img_size=img_size,
        patch_size=PATCH,
        out_type='raw',
    ) | (kwargs)


def mm_vit(img_size=SIZE, seed=0, **kwargs):
    """The same ViT in mmpretrain."""
    config = mm_config(img_size, **kwargs)
    del config['type']
    return randomise(VisionTransformer(**config), seed)


def with_prefix(prefix, state):
    return {prefix + name: value for name, value in state.items()}


def checkpoint(layout, img_size=SIZE):
    """A checkpoint, and the ViTs in it.

    Returns:
        Tuple[dict, nn.Module, nn.Module]: What to save; the teacher (or the
        only encoder) and the student, both as models of its library.
    """
    if layout in ('mmmoca', 'mmpretrain', 'classifier'):
        models = mm_vit(img_size, 1), mm_vit(img_size, 2)
    else:
        models = timm_vit(1, img_size), timm_vit(2, img_size)
    teacher, student = (model.state_dict() for model in models)
    extra = torch.ones(3, 2)
    args = Namespace(lr=0.1, arch='vit_small', paths=['a', 'b'], seed=None)
    if layout == 'mmmoca':
        backbone = mm_config(img_size)
        content = dict(
            state_dict={
                **with_prefix('backbone.', student),
                'codebook.words': extra,
                **with_prefix('teacher.', teacher),
            },
            meta=dict(
                cfg=Config(dict(model=dict(backbone=backbone))).pretty_text,
                iter=7,
            ),
        )
    elif layout == 'moca':
        content = dict(
            model={
                **with_prefix('encoder.', student),
                'mask_token_cls_pt': extra,
                **with_prefix('encoder_teacher.', teacher),
            },
            optimizer=dict(state={}, param_groups=[dict(lr=0.1)]),
            epoch=199,
            scaler=dict(scale=65536.0),
            args=args,
        )
    elif layout == 'mmpretrain':
        content = dict(state_dict=with_prefix('backbone.', teacher), meta={})
    elif layout == 'classifier':
        content = dict(
            state_dict={
                **with_prefix('backbone.', teacher),
                'head.layers.head.weight': extra,
            },
            meta={},
        )
    elif layout == 'dino':
        head = {'head.mlp.0.weight': extra}
        content = dict(
            student=with_prefix(
                'module.', with_prefix('backbone.', student) | head
            ),
            teacher=with_prefix('backbone.', teacher) | head,
            epoch=3,
            args=args,
            dino_loss={'center': extra},
        )
    elif layout == 'dino-backbone':
        content = teacher
    elif layout == 'ibot-backbone':
        content = dict(state_dict={**teacher, 'masked_embed': extra})
    elif layout == 'mae':
        content = dict(
            model={
                **teacher,
                'mask_token': extra,
                'decoder_pos_embed': extra,
                'decoder_blocks.0.attn.qkv.weight': extra,
            }
        )
    elif layout == 'msn':
        fc = {'fc.fc1.weight': extra}
        content = dict(
            encoder=with_prefix('module.', student | fc),
            target_encoder=with_prefix('module.', teacher | fc),
            prototypes=extra,
            epoch=3,
        )
    elif layout == 'mocov3':
        head = {'head.0.weight': extra}  # the projector
        content = dict(
            epoch=300,
            arch='vit_small',
            state_dict=with_prefix(
                'module.',
                {
                    **with_prefix('base_encoder.', student | head),
                    **with_prefix('momentum_encoder.', teacher | head),
                    'predictor.0.weight': extra,
                },
            ),
        )
    elif layout == 'deit':
        content = dict(model={**teacher, 'head.weight': extra}, args=args)
    else:
        content = {**teacher, 'head.weight': extra}
    return content, *models


def tokens(model, images):
    """All tokens after the final norm, (B, 1 + L, D), of either library."""
    with torch.no_grad():
        if isinstance(model, TimmViT):
            return model.forward_features(images)
        return model(images)[0]
