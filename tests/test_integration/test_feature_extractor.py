# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MMPreTrain's FeatureExtractor on the real configs and a checkpoint."""

import copy
import re

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmpretrain import (
    FeatureExtractor,
    ImageRetrievalInferencer,
    get_model,
)
from mmpretrain.apis.model import ModelHub
from mmpretrain.registry import MODELS
from PIL import Image
from torch import nn

import mmmoca.checkpoints  # noqa: F401  knows mmmoca-student://

from ..images import CONFIGS, DEMO_CONFIG
from ..runs import demo_model

PRETRAINING = ('moca_vit-b16_200e.py', 'moca_vit-b16_200e_own-images.py')
EVALUATION = tuple(
    f'classification/{name}_vit-b16_in1k.py' for name in ('knn', 'lowshot')
)


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
    model = MODELS.build(small(PRETRAINING[0]).model)
    model.init_weights()
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
    return folder / 'run.pth', folder / 'image.png'


def expected(model, path, name, which):
    """Feature of the middle of an image, without pipeline and model."""
    method, encoder = Image.BICUBIC, copy.deepcopy(model.backbone)
    if which == 'teacher':
        encoder = copy.deepcopy(model.teacher)
    if 'lowshot' in name:
        method, encoder.ln1 = Image.BILINEAR, nn.Identity()
    image = Image.open(path).resize((341, 256), method)  # of 400 x 300
    image = image.crop((58, 16, 282, 240))
    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    pixels = (np.asarray(image, np.float64) - mean) / std
    inputs = torch.from_numpy(pixels).float().permute(2, 0, 1)[None]
    return encoder.encode(inputs).patches.mean(dim=1)[0]


@pytest.mark.parametrize('which', ['teacher', 'student'])
@pytest.mark.parametrize('name', PRETRAINING + EVALUATION)
def test_features_of_an_image(model, files, name, which):
    checkpoint, image = map(str, files)
    options = {}
    if name in EVALUATION:
        checkpoint = f'mmmoca-{which}://{checkpoint}'
    elif which == 'student':  # the teacher is the default
        options = dict(which=which)
    extract = FeatureExtractor(small(name), checkpoint)
    (feature,) = extract(image, **options)
    if name in EVALUATION:  # mmpretrain's classifiers have several stages
        (feature,) = feature
    with torch.no_grad():
        right, other = (
            expected(model, files[1], name, encoder)
            for encoder in sorted(('teacher', 'student'), key=which.__ne__)
        )
    torch.testing.assert_close(feature, right, atol=1e-5, rtol=1e-4)
    assert (feature - other).abs().max() > 0.1


def test_quick_start_on_an_array():
    model = demo_model()
    model._config = Config.fromfile(DEMO_CONFIG)
    extract = FeatureExtractor(model)
    array = np.full((60, 80, 3), 51, np.uint8)
    features = extract([array, array], batch_size=2)
    inputs = torch.full((1, 3, 48, 48), (51 - 127.5) / 63.75)
    assert len(features) == 2
    torch.testing.assert_close(features[1], model.extract_feat(inputs)[0])


# Of mmpretrain's ModelHub, at the size of `small`.
TINY = dict(
    backbone=dict(arch='deit-t'),
    codebook=dict(num_words=16),
    neck=dict(embed_dims=32, num_heads=2),
)


def test_by_name(model, files):
    extract = FeatureExtractor(
        'moca_vit-b16_200e', pretrained=str(files[0]), **TINY
    )
    (feature,) = extract(str(files[1]))
    with torch.no_grad():
        right = expected(model, files[1], PRETRAINING[0], 'teacher')
    torch.testing.assert_close(feature, right, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize('which', ['teacher', 'student', 'file'])
def test_retrieval_by_name(model, files, tmp_path, which):
    """Of the teacher by default; similarity is the cosine of [AVG]."""
    checkpoint, image = map(str, files)
    if which != 'file':
        checkpoint = f'mmmoca-{which}://{checkpoint}'
    photos = [image]
    for turn in (90, 180):
        photos.append(str(tmp_path / f'{turn}.png'))
        turned = Image.open(image).rotate(turn, expand=True)
        turned.resize((400, 300)).save(photos[-1])
    search = ImageRetrievalInferencer(
        'retrieval_vit-b16',
        prototype=photos,
        pretrained=checkpoint,
        backbone=TINY['backbone'],
    )
    (found,) = search(image, topk=3)
    encoder = 'student' if which == 'student' else 'teacher'
    with torch.no_grad():
        features = [expected(model, p, 'knn', encoder) for p in photos]
    similar = torch.cosine_similarity(features[0][None], torch.stack(features))
    scores, order = similar.sort(descending=True)
    assert [match['sample_idx'] for match in found] == order.tolist()
    paths = [match['sample']['img_path'] for match in found]
    assert paths == [photos[i] for i in order]
    torch.testing.assert_close(
        torch.stack([match['match_score'] for match in found]), scores
    )
    assert scores[1] < 0.999


def test_retrieval_by_a_checkpoint_without_encoder(model, tmp_path):
    torch.save(dict(state_dict=model.neck.state_dict()), tmp_path / 'a.pth')
    with pytest.raises(ValueError, match='write mmmoca-teacher://FILE'):
        get_model(
            'retrieval_vit-b16',
            pretrained=str(tmp_path / 'a.pth'),
            backbone=TINY['backbone'],
        )


@pytest.mark.parametrize(
    'folder, name, config',
    [
        ('', 'moca_vit-b16_200e', PRETRAINING[0]),
        ('classification', 'retrieval_vit-b16', 'retrieval_vit-b16.py'),
    ],
)
def test_what_the_readmes_show(
    model, files, monkeypatch, tmp_path, folder, name, config
):
    """As it stands there, with smaller models."""
    text = (CONFIGS / folder / 'README.md').read_text()
    code = re.search(r'```python\n(import mmmoca\n.*?)```', text, re.S)[1]
    for known in (name, f'{name}_v1.0'):
        if ModelHub.has(known):
            entry = copy.copy(ModelHub.get(known))
            entry.data = entry.data | dict(Weights=str(files[0]))
            entry.config = small(f'{folder}/{config}'.lstrip('/'))
            monkeypatch.setitem(ModelHub._models_dict, known, entry)
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'photos').mkdir()
    for angle in range(6):
        copied = f'photos/{angle}.jpg' if angle else 'image.jpg'
        Image.open(files[1]).rotate(angle).save(copied)
    (tmp_path / 'epoch_200.pth').symlink_to(files[0])
    shown = {}
    exec(code, shown)
    if folder:
        assert len(shown['search']('image.jpg', topk=5)[0]) == 5
    else:
        state = shown['model'].state_dict()
        assert torch.equal(state['teacher.ln1.bias'], model.teacher.ln1.bias)
        with torch.no_grad():
            right = expected(model, 'image.jpg', config, 'teacher')
        torch.testing.assert_close(
            shown['features'], right, atol=2e-2, rtol=0.01
        )
