# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The panels of the overview."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image
from torch.nn import functional as F

import mmmoca
from mmmoca.visualization.gallery import Gallery, open_sets, root_of
from mmmoca.visualization.panels import (
    dense_patches,
    feature_and_word_colors,
    mask_panel,
    nearest_panel,
    student_panel,
)
from mmmoca.visualization.pictures import pca_colors

from ..helpers.builders import PICTURE_SIZE as SIZE
from ..helpers.builders import pictured_moca
from ..helpers.images import DEMO_CONFIG, point_to, write_images
from ..helpers.runs import demo_model, own_config
from ..helpers.stores import write_arrow, write_shards


class Teacher:
    """The encoder of a model, or one that returns mean pixels of patches."""

    def __init__(self, backbone):
        self.backbone = backbone

    def __call__(self, images):
        grid = [n // p for n, p in zip(images.shape[2:], self.patch)]
        patches = self.backbone.encode(images).patches.mT.unflatten(2, grid)
        return SimpleNamespace(patches=patches)

    @property
    def patch(self):
        return self.backbone.patch_embed.projection.kernel_size


def test_what_the_student_sees():
    model = pictured_moca()
    pictures = np.random.default_rng(0).uniform(0.2, 0.8, (2, *SIZE, 3))
    masks = model.masking.draw(2, torch.device('cpu'))
    panel = student_panel(pictures, masks, (4, 8))
    assert panel.columns == ['round 1', 'round 2']
    for row, picture in enumerate(pictures):
        for shown, mask in zip(panel.rows[row], masks):
            same = (shown[::8, ::8] == picture).all(axis=2)
            same = same.reshape(4, 4, 8, 4).all(axis=(1, 3))
            visible = set(np.flatnonzero(same))
            assert visible == set(mask.visible[row].tolist())


@pytest.mark.parametrize('own', [[4, 5, 20], [None] * 3])
def test_neighbours(own):
    """Images find their neighbours whether they are in the bank or not."""
    torch.manual_seed(0)
    features = F.normalize(torch.randn(30, 6), dim=1)
    features[5] = features[4]
    rows = [4, 5, 20]
    similarity = features[rows] @ features.T
    if own[0] is not None:
        similarity[range(3), rows] = -2
    order = similarity.argsort(dim=1, descending=True, stable=True)[:, :5]
    labels = torch.arange(30) % 4
    bank = SimpleNamespace(
        features=dict(a=features),
        labels=labels.tolist(),
        picture=lambda place: place,
    )
    shown = SimpleNamespace(
        features=dict(a=features[rows]),
        labels=labels[rows].tolist(),
        places_in=lambda other: own,
    )
    panel = nearest_panel('a', shown, bank)
    assert panel.rows == order.tolist()
    same = labels[order] == labels[rows, None]
    assert panel.same_class == same.tolist()


def demo_encoder(folder):
    """Return the demo's config, and an encoder of its model."""
    cfg, path = Config.fromfile(DEMO_CONFIG), folder / 'a.pth'
    torch.save(dict(state_dict=demo_model().state_dict()), path)
    return cfg, mmmoca.load(path, device='cpu', num_heads=4, config=cfg)


def test_masks_found_in_context(tmp_path):
    """Found masks are next to the true ones, which are cut like the images."""
    for folder in ('images/a', 'masks/a'):
        (tmp_path / folder).mkdir(parents=True)
    for index in range(7):
        mask = np.zeros((60, 80), np.uint8)
        mask[:, 10 * index : 10 * index + 30] = 1
        picture = Image.fromarray(255 * mask).convert('RGB')
        picture.save(tmp_path / f'images/a/{index}.png')
        if index:
            Image.fromarray(mask).save(tmp_path / f'masks/a/{index}.png')
    cfg, encoder = demo_encoder(tmp_path)
    dataset, _ = open_sets(cfg, str(tmp_path), encoder.pipeline)
    assert len(dataset) == 7
    shown, bank = (
        Gallery(dataset, rows, encoder.pipeline) for rows in ([0, 3], range(7))
    )
    panel = mask_panel(encoder, shown, bank)
    assert not panel.rows[0] and panel.columns[0].endswith('180 patches')
    shape = shown.picture(1)[..., 0] > 0.5
    found, true = (image[..., 2] > 0.3 for image in panel.rows[1])
    assert (true == shape).mean() > 0.97 and (found == shape).mean() > 0.85


@pytest.mark.parametrize('write', [None, write_shards, write_arrow])
@pytest.mark.slow
def test_images_of_any_place(tmp_path, write):
    write_images(tmp_path, train=2, val=2, classes=2)
    place, (cfg, encoder) = tmp_path / 'val', demo_encoder(tmp_path)
    if write is not None:
        place = tmp_path / 'written'
        write(tmp_path / 'val', place)
    dataset, bank = open_sets(cfg, str(place), encoder.pipeline)
    assert dataset is bank
    point_to(cfg, tmp_path)
    expected, train = open_sets(cfg, None, encoder.pipeline)
    galleries = [
        Gallery(images, [1, 2], encoder.pipeline).encoded(encoder, 'cls')
        for images in (dataset, expected, train)
    ]
    found, known, others = galleries
    assert known.labels == [0, 1]
    for name, features in found.features.items():
        torch.testing.assert_close(features, known.features[name])
    np.testing.assert_array_equal(found.picture(0), known.picture(0))
    assert known.places_in(others) == [None, None]
    assert known.places_in(known.part([1])) == [None, 0]


def test_wrapped_training_images(tmp_path):
    """Each image is used once: a repetition would be its nearest image."""
    write_images(tmp_path, train=2, val=1, classes=1)
    cfg = own_config(tmp_path)
    part = cfg.train_dataloader.dataset
    part.pipeline = [dict(type='mmmoca.LoadImage')]
    for wrapped, number in (
        (dict(type='RepeatDataset', times=3, dataset=part), 3),
        (dict(type='ConcatDataset', datasets=[part, part]), 6),
    ):
        cfg.train_dataloader.dataset = wrapped
        images, _ = open_sets(cfg, None, part.pipeline)
        assert len(images) == number
        assert root_of(images) == str(tmp_path)


class MeanPixels:
    """Describes each patch by the mean of its pixels."""

    patch_embed = SimpleNamespace(
        projection=SimpleNamespace(kernel_size=(4, 8))
    )
    embed_dims = 3

    def encode(self, images):
        patches = F.avg_pool2d(images, (4, 8)).flatten(2).mT
        return SimpleNamespace(patches=patches)


def test_dense_patches_lie_where_their_centres_are():
    images = torch.randn(2, 3, 16, 24)
    dense = dense_patches(Teacher(MeanPixels()), images, (2, 4))
    assert dense.shape == (2, 3, 8, 6)
    padded = F.pad(images, (4, 4, 2, 2), mode='reflect')
    for row in range(8):
        for column in range(6):
            # the patch around the centre of this cell
            y, x = 2 * row + 1, 4 * column + 2
            patch = padded[:, :, y : y + 4, x : x + 8]
            expected = patch.mean(dim=(2, 3))
            torch.testing.assert_close(dense[..., row, column], expected)


@pytest.mark.parametrize('centre', [None, 0.9])
@torch.no_grad()
def test_words_of_the_patches(centre):
    model = pictured_moca(codebook__centre=centre)
    inputs = torch.randn(3, 3, *SIZE)
    teacher = Teacher(model.teacher)
    tokens = dense_patches(teacher, inputs, (1, 1)).permute(0, 2, 3, 1)
    if centre:
        mean = model.codebook.token_mean.normal_().unflatten(0, (4, 8))
        for dim in (0, 1):
            mean = mean.repeat_interleave(4, dim=dim)
        tokens = tokens - mean
    features, words = feature_and_word_colors(teacher, model.codebook, inputs)
    tokens = F.normalize(tokens, dim=-1).numpy()
    codebook = model.codebook.words.numpy()
    word = np.einsum('nhwd,kd->nhwk', tokens, codebook).argmax(axis=-1)
    assert len(np.unique(word)) > 2
    colors, word_colors = pca_colors(tokens, codebook[word])
    np.testing.assert_allclose(features, colors, atol=1e-4)
    np.testing.assert_allclose(words, word_colors, atol=1e-4)
