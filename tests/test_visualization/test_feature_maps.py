# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of every place of an image, and their colours."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mmmoca.visualization.feature_maps import (
    dense_patches,
    feature_and_word_colors,
)
from mmmoca.visualization.pictures import pca_colors

from ..helpers.builders import PICTURE_SIZE as SIZE
from ..helpers.builders import pictured_moca


class MeanEncoder:
    """Describes each patch by the mean of its pixels."""

    patch_size = (4, 8)

    def encode(self, images):
        self.patches = F.avg_pool2d(images, self.patch_size).flatten(2).mT
        return self


def test_dense_patches_lie_where_their_centres_are():
    images = torch.randn(2, 3, 16, 24)
    dense = dense_patches(MeanEncoder(), images, (2, 4))
    assert dense.shape == (2, 8, 6, 3)
    padded = F.pad(images, (4, 4, 2, 2), mode='reflect')
    for row in range(8):
        for column in range(6):
            # The patch around the centre of this cell.
            y, x = 2 * row + 1, 4 * column + 2
            patch = padded[:, :, y : y + 4, x : x + 8]
            expected = patch.mean(dim=(2, 3))
            torch.testing.assert_close(dense[:, row, column], expected)


@pytest.mark.parametrize('centre', [None, 0.9])
@torch.no_grad()
def test_words_of_the_patches(centre):
    model = pictured_moca(codebook__centre=centre)
    inputs = torch.randn(3, 3, *SIZE)
    tokens = dense_patches(model.teacher, inputs, (1, 1))
    if centre:
        mean = model.codebook.token_mean.normal_().unflatten(0, (4, 8))
        for dim in (0, 1):
            mean = mean.repeat_interleave(4, dim=dim)
        tokens = tokens - mean
    features, words = feature_and_word_colors(model, inputs)
    tokens = F.normalize(tokens, dim=-1).numpy()
    codebook = model.codebook.words.numpy()
    word = np.einsum('nhwd,kd->nhwk', tokens, codebook).argmax(axis=-1)
    assert len(np.unique(word)) > 2
    colors, word_colors = pca_colors(tokens, codebook[word])
    np.testing.assert_allclose(features, colors, atol=1e-4)
    np.testing.assert_allclose(words, word_colors, atol=1e-4)
