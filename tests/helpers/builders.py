# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The small models of the tests."""

import torch
from mmpretrain.registry import MODELS
from torch.nn import functional as F

MOCA_SIZE = (32, 48)
PICTURE_SIZE = (16, 32)
ARCH = dict(embed_dims=16, num_layers=3, num_heads=2, feedforward_channels=32)


def moca_config(**changes):
    """Return the config of a MOCA on 4 x 6 patches with 2 channels.

    A change under the name of a part replaces this part. A change under
    ``part__name`` replaces a setting of the part.
    """
    cfg = dict(
        type='mmmoca.MOCA',
        backbone=dict(
            type='mmmoca.MOCAViT',
            arch=ARCH,
            img_size=MOCA_SIZE,
            patch_size=8,
            in_channels=2,
            tap_layer=2,
        ),
        codebook=dict(type='mmmoca.OnlineCodebook', num_words=24, border=1),
        neck=dict(
            type='mmmoca.CondenserNeck', embed_dims=8, depth=1, num_heads=2
        ),
        head=dict(type='mmmoca.AssignmentHead'),
        masking=dict(mask_ratios=(0.5, 0.75), decoder_mask_ratios=(0.25, 0.5)),
    )
    for key, value in changes.items():
        part, _, name = key.partition('__')
        if name:
            cfg[part][name] = value
        else:
            cfg[part] = value
    return cfg


def build_moca(**changes):
    """Build :func:`moca_config`'s model, with the same weights each time."""
    torch.manual_seed(0)
    model = MODELS.build(moca_config(**changes))
    model.init_weights()
    return model.train()


def random_views(batch_size=4):
    """Return two views for that model, (B, 2, 32, 48), always the same."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(batch_size, 2, *MOCA_SIZE, generator=generator)
        for _ in range(2)
    ]


def pictured_moca(**options):
    """Return a MOCA on 4 x 8 patches for pictures; its words are tokens."""
    model = build_moca(
        backbone__img_size=PICTURE_SIZE,
        backbone__patch_size=4,
        backbone__in_channels=3,
        codebook__num_words=8,
        data_preprocessor=dict(
            type='mmpretrain.SelfSupDataPreprocessor',
            mean=[128] * 3,
            std=[64] * 3,
            to_rgb=True,
        ),
        **options,
    )
    # Use tokens of the teacher as words, as they are after some steps.
    with torch.no_grad():
        tokens = model.teacher.encode(torch.randn(8, 3, *PICTURE_SIZE)).patches
    model.codebook.words.copy_(F.normalize(tokens[:, 5], dim=1))
    return model


def codes_of(targets):
    """Return the assignments q_T (paper, section 3.1), (2B, L, K)."""
    similarity = F.normalize(targets.tokens, dim=-1) @ targets.words.T
    return (similarity * targets.sharpness).softmax(dim=-1)
