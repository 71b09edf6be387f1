# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The model whose pictures are drawn."""

import torch
from torch.nn import functional as F

from .builders import build_moca

SIZE = (16, 32)


def small_moca(**options):
    """A MOCA on a grid of 4 x 8 patches whose words are tokens."""
    model = build_moca(
        backbone__img_size=SIZE,
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
    # Words as they are after some steps: tokens of the teacher.
    with torch.no_grad():
        tokens = model.teacher.encode(torch.randn(8, 3, *SIZE)).patches
    model.codebook.words.copy_(F.normalize(tokens[:, 5], dim=1))
    return model
