# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the documentation shows is run as it stands there."""

import re
from pathlib import Path

import torch

from mmmoca.registry import MODELS

from .builders import build_moca, random_views

DOCS = Path(__file__).resolve().parents[1] / 'docs'


def test_target_of_ones_own():
    code = re.findall(
        r'```python\n(.*?)```', (DOCS / 'architecture.md').read_text(), re.S
    )
    own = {}
    exec(code[0], own)
    exec(code[1], own)
    try:
        model = build_moca(
            head=dict(own['model']['head'], patch_size=8),
            backbone__in_channels=3,
        )
    finally:
        MODELS.module_dict.pop('PatchColourHead')
    predictor = model.head.predictor
    with torch.no_grad():
        predictor.weight.zero_()
        predictor.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    masks = model.masking.draw(8, torch.device('cpu'))
    model.masking.draw = lambda *_: masks
    views = [torch.cat((v, v[:, :1]), dim=1) for v in random_views()]
    losses = model.loss(views)
    patches = torch.cat(views).unfold(2, 8, 8).unfold(3, 8, 8)
    error = patches.mean(dim=(4, 5)).flatten(2) - predictor.bias[:, None]
    expected = [
        error.square().gather(2, mask.decoded[:, None].expand(-1, 3, -1))
        for mask in masks
    ]
    # lambda is one half, twice: the two views.
    torch.testing.assert_close(
        losses['loss_loc'], sum(e.mean() for e in expected) / len(masks)
    )
    model.parse_losses(losses)[0].backward()
    assert predictor.weight.grad.any()
