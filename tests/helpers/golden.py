# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Results of the authors' released code, and our model in the same state."""

import functools
import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

from mmmoca.checkpoints.release import convert_release
from mmmoca.engine.hooks.teacher_ema_hook import update_teacher

from .builders import build_moca

CASES = ('two_rounds', 'one_round', 'cls_embedding', 'init')
GOLDEN = Path(__file__).parents[1] / 'data' / 'golden'


@functools.cache
def _read(name):
    """Read all arrays of a file at once, since opening each one is slow."""
    with np.load(GOLDEN / f'{name}.npz') as file:
        return dict(file)


class Case:
    """A golden case: its arrays as tensors, and its nested groups."""

    def __init__(self, name):
        arrays = _read(name)
        self.meta = json.loads(bytes(arrays['meta']))
        self.data = {
            key: torch.tensor(array)
            for key, array in arrays.items()
            if key != 'meta'
        }

    def __getitem__(self, key):
        return self.data[key]

    def group(self, prefix):
        start = len(prefix) + 1
        return {
            key[start:]: value
            for key, value in self.data.items()
            if key.startswith(f'{prefix}/')
        }

    def rounds(self, key):
        return list(self.group(key).values())


def settings(case):
    """Return a case's settings by part, under the names of our config."""
    config, meta = case.meta['config'], case.meta
    arch = dict(
        embed_dims=config['embed_dim'],
        num_layers=config['depth'],
        num_heads=config['num_heads'],
        feedforward_channels=4 * config['embed_dim'],
    )
    return dict(
        backbone=dict(
            arch=arch,
            img_size=config['img_size'],
            patch_size=config['patch_size'],
            in_channels=3,
            tap_layer=config['depth'] - config['early_layer'],
        ),
        codebook=dict(
            num_words=config['num_words'],
            num_new_words=config['num_new_words'],
            border=config['skip_offset'],
            inv_delta=config['inv_delta'],
        ),
        neck=dict(
            embed_dims=config['decoder_embed_dim'],
            depth=config['decoder_depth'],
            num_heads=config['decoder_num_heads'],
        ),
        head=dict(kappa=config['kappa'], lambda_img=meta['img_weight']),
        masking=dict(
            mask_ratios=meta['mask_ratio'],
            decoder_mask_ratios=meta['dec_mask_ratio'],
        ),
    )


def build(case):
    """Build the model of a case, with its weights."""
    model = build_moca(
        image_embedding='avg' if case.meta['avg_pooling'] else 'cls',
        **{
            f'{part}__{key}': value
            for part, values in settings(case).items()
            for key, value in values.items()
        },
    )
    converted, _ = convert_release(case.group('state_dict'), 'golden')
    model.load_state_dict(converted['state_dict'])
    update_teacher(model.teacher, model.backbone, float(case['momentum']))
    # The temperature follows from mu at the end of the previous step. A case
    # gives both values; in a run they are the same.
    model.codebook.msd.copy_(case['dist_norm_prev_before'][0])
    return model


def released(case, **changes):
    """Return a golden case's weights as the authors' training saves them."""
    return dict(
        model=case.group('state_dict') | changes,
        optimizer=dict(state={}, param_groups=[dict(lr=0.1)]),
        epoch=199,
        scaler=dict(scale=65536.0, growth_factor=2.0),
        args=Namespace(model='moca_vit', lr=None, norm_pix_loss=False),
    )
