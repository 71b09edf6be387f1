# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MMPreTrain's FeatureExtractor on the real configs and a checkpoint."""

import copy

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmpretrain import FeatureExtractor
from mmpretrain.registry import MODELS
from PIL import Image
from torch import nn

import mmmoca.hub  # noqa: F401  adds our models and mmmoca-student://

from ..helpers.images import CONFIGS

PRETRAINING = 'moca_vit-b16_200e.py'


def small(name):
    cfg = Config.fromfile(CONFIGS / name)
    cfg.model.backbone.arch = 'deit-t'
    if 'codebook' in cfg.model:
        cfg.model.codebook.num_words = 16
        cfg.model.neck.update(embed_dims=32, num_heads=2)
    return cfg


@pytest.fixture(scope='module')
def model():
    """Of random weights, another teacher than student."""
    torch.manual_seed(0)
    model = MODELS.build(small(PRETRAINING).model)
    for parameter in model.teacher.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture(scope='module')
def files(model, tmp_path_factory):
    """The checkpoint, and an image."""
    folder = tmp_path_factory.mktemp('extractor')
    torch.save(dict(state_dict=model.state_dict()), folder / 'run.pth')
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    image = Image.fromarray(pixels).resize((400, 300), Image.BICUBIC)
    image.save(folder / 'image.png')
    return str(folder / 'run.pth'), str(folder / 'image.png')


@torch.no_grad()
def expected(path, encoder, final=True, method=Image.BICUBIC):
    """Feature of the middle of an image, without pipeline and model."""
    if not final:
        encoder = copy.deepcopy(encoder)
        encoder.ln1 = nn.Identity()
    image = Image.open(path).resize((341, 256), method)  # of 400 x 300
    image = image.crop((58, 16, 282, 240))
    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    pixels = (np.asarray(image, np.float64) - mean) / std
    inputs = torch.from_numpy(pixels).float().permute(2, 0, 1)[None]
    return encoder.encode(inputs).patches.mean(dim=1)[0]


def test_features_of_an_image(model, files):
    checkpoint, image = files
    extract = FeatureExtractor(small(PRETRAINING), checkpoint)
    (feature,) = extract(image, which='student')
    found = [(feature, expected(image, model.backbone))]
    for name, scheme, *how in (
        ('knn', 'mmmoca-student', model.backbone),
        ('lowshot', 'mmmoca-teacher', model.teacher, False, Image.BILINEAR),
    ):
        cfg = small(f'classification/{name}_vit-b16_in1k.py')
        extract = FeatureExtractor(cfg, f'{scheme}://{checkpoint}')
        # mmpretrain's classifiers have several stages.
        ((feature,),) = extract(image)
        found.append((feature, expected(image, *how)))
    for feature, right in found:
        torch.testing.assert_close(feature, right, atol=1e-5, rtol=1e-4)
