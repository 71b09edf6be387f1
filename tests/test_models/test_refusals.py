# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Errors that refuse models and inputs name the setting.

tests/robustness tests the ranges of single settings.
"""

import pytest
import torch

from mmmoca.models import (
    MaskingPlan,
    MOCAViT,
    RandomTokenSampler,
    ViewsDataPreprocessor,
    sincos_positions_2d,
)
from mmmoca.registry import MODELS

from ..helpers import probes
from ..helpers.builders import ARCH, build_moca, random_views
from ..helpers.errors import raises

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
RGB = dict(type='SelfSupDataPreprocessor', mean=[9] * 3, std=[1] * 3)
RESNET = dict(type='ResNet', depth=18)
SIZE = dict(arch=ARCH, img_size=(32, 48), patch_size=8, in_channels=5)


def plan(masked, decoded, **options):
    MaskingPlan(196, masked, decoded, **options)


def normalise(**options):
    """Normalise an image of five bands, none of which may be dropped."""
    image = torch.randint(256, (5, 4, 6), dtype=torch.uint8)
    ViewsDataPreprocessor(**options)(dict(inputs=[image[None]]))


def loss(*views):
    build_moca().loss(views)


def loss_of(**methods):
    """Compute the loss after replacing methods of the head."""
    model = build_moca()
    vars(model.head).update(methods)
    model.loss(random_views())


def encode(image):
    MOCAViT(**SIZE).encode(image)


def pyramid(maps):
    cfg = dict(type='mmmoca.ViTFeaturePyramid', in_channels=6)
    MODELS.build(cfg)(maps)


def probe_of(out_type):
    """Run a probe of two kinds of features on a backbone that gives one."""
    model = probes.build(**probes.FEATURES['cls and avg'][0])
    model.backbone.out_type = out_type
    model.extract_feat(torch.randn(1, 3, 16, 16))


def pick(images, words):
    tokens = [torch.ones(2, images, 4)]
    generator = torch.Generator().manual_seed(0)
    RandomTokenSampler().pick(tokens, [images], words, generator)


VIEW, MAP = random_views()[0], torch.zeros(2, 6, 4, 6)
BLOCKS = probes.FEATURES['cls of two blocks'][0]
ROTARY = dict(arch=dict(ARCH, num_heads=8), positions='rope')


@pytest.mark.parametrize(
    'call, arguments, options, key',
    [
        (plan, ([1.0], [0.5]), {}, ''),
        (plan, ([0.5], [0.5]), {}, ''),
        (plan, ([0.5], [-0.1]), {}, ''),
        (plan, ([], []), {}, 'mask_ratios'),
        (plan, (0.8, [0.2, 0.3]), {}, 'mask_ratios'),
        (loss_of, (), dict(loss_loc=lambda *_: torch.ones(())), 'loss_loc'),
        (loss_of, (), dict(loss_img=lambda *_: None), 'loss_img'),
        (plan, ([0.999], [0.5]), {}, 'mask_ratios'),
        (plan, ([0.4, 0.4], [0.2, 0.2]), {}, ''),
        (plan, ([0.5], [0.3]), dict(complementary=True), 'complementary'),
        (build_moca, (), dict(image_embedding='max'), 'image_embedding'),
        (build_moca, (), dict(backbone__final_norm=False), 'final_norm'),
        (build_moca, (), dict(head__lambda_img=1.0), 'neck'),
        (build_moca, (), dict(neck=None), 'neck'),
        (build_moca, (), dict(head__lambda_img=2.0), 'lambda_img'),
        (build_moca, (), dict(backbone__tap_layer=None), 'tap_layer'),
        (build_moca, (), dict(neck__num_heads=3), 'num_heads'),
        (build_moca, (), dict(backbone=RESNET), 'mmmoca.MOCAViT'),
        # mmpretrain's own preprocessor would drop bands.
        (build_moca, (), dict(data_preprocessor=RGB), 'in_channels'),
        (loss, [VIEW], {}, ''),
        (loss, [torch.zeros(4, 2, 40, 48)] * 2, {}, ''),
        (normalise, (), dict(mean=MEAN, std=[1.0]), 'std'),
        (
            normalise,
            (),
            dict(mean=[0] * 5, std=[1] * 5, to_rgb=True),
            'to_rgb=False',
        ),
        (normalise, (), dict(mean=MEAN, std=[1, 0, 1]), 'std'),
        (normalise, (), dict(mean=MEAN, std=STD), 'in_channels=5'),
        (normalise, (), dict(to_rgb=True), 'in_channels=5'),
        (MOCAViT, (), SIZE | dict(img_size=(32, 30)), 'patch'),
        (encode, [torch.zeros(1, 5, 32, 36)], {}, 'patch'),
        (MOCAViT, (), SIZE | ROTARY, 'num_heads=8'),
        (sincos_positions_2d, ((3, 5), 6), {}, ''),
        (pyramid, [[MAP] * 2], {}, 'out_indices'),
        (probe_of, ['cls_token'], {}, "out_type='raw'"),
        (probes.build, (), BLOCKS | dict(final_norm=False), 'final_norm'),
        (pick, (2, 3), {}, ''),
    ],
)
def test_refusals(call, arguments, options, key):
    with raises((ValueError, TypeError), key):
        call(*arguments, **options)
