# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probes of a small ViT, and the features that they read."""

import torch
from mmpretrain.registry import MODELS

from .builders import ARCH


def config(neck=None, **backbone):
    """Return the config of two classifiers on a small frozen ViT."""
    vit = dict(type='VisionTransformer', arch=ARCH, img_size=16, patch_size=8)
    vit |= backbone
    head = dict(
        type='mmmoca.BatchedLinearHead', num_classes=6, base_lrs=[0.1, 1.0]
    )
    return dict(type='mmmoca.LinearProbe', backbone=vit, neck=neck, head=head)


def build(**options):
    """Build the model of :func:`config` with the same weights each time."""
    torch.manual_seed(0)
    model = MODELS.build(config(**options))
    torch.nn.init.normal_(model.backbone.cls_token)
    torch.nn.init.normal_(model.backbone.ln1.weight)
    torch.nn.init.normal_(model.backbone.ln1.bias)
    return model


LAST_BLOCK = dict(type='mmmoca.TokenFeatures')
TWO_BLOCKS = dict(LAST_BLOCK, num_blocks=2, embed_dims=16)
# Options of a model, and its features computed from the tokens of all blocks.
FEATURES = {
    'avg': (
        dict(out_type='featmap', neck=dict(type='GlobalAveragePooling')),
        lambda t: [t[-1][:, 1:].mean(1)],
    ),
    'cls': (dict(out_type='cls_token'), lambda t: [t[-1][:, 0]]),
    'cls and avg': (
        dict(out_type='raw', neck=LAST_BLOCK),
        lambda t: [t[-1][:, 0], t[-1][:, 1:].mean(1)],
    ),
    'cls of two blocks': (
        dict(
            out_type='raw',
            out_indices=[1, 2],
            neck=dict(TWO_BLOCKS, with_avg=False),
        ),
        lambda t: [t[1][:, 0], t[2][:, 0]],
    ),
}
