# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints of small pretraining runs, written without a run."""

import torch
from mmengine.config import Config
from mmpretrain.registry import MODELS

from mmmoca.checkpoints import run_record

from .checkpoint_files import randomise
from .images import DEMO_CONFIG

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)


def write_run(path, seed=0, **options):
    """Write what a run of the demo's config saves, with a smaller ViT.

    Returns:
        tuple[Config, nn.Module]: The run's config and its model.
    """
    cfg = Config.fromfile(DEMO_CONFIG)
    small = {'model.backbone.arch': ARCH, 'model.backbone.tap_layer': 1}
    words = {'num_words': 8, 'num_new_words': 4}
    small |= {f'model.codebook.{key}': n for key, n in words.items()}
    cfg.merge_from_dict(small | options)
    torch.manual_seed(seed)
    model = randomise(MODELS.build(cfg.model), seed)
    meta = dict(mmmoca=run_record(cfg.to_dict(), model))
    torch.save(dict(state_dict=model.state_dict(), meta=meta), path)
    return cfg, model
