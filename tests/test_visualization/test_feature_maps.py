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

from .models import SIZE, small_moca


class MeanEncoder:
    """Describes each patch by the mean of its pixels."""

    patch_size = (4, 8)

    def encode(self, images):
        patches = images.unflatten(2, (-1, 4)).unflatten(4, (-1, 8))
        means = patches.mean(dim=(3, 5))  # (B, C, rows, columns)
        self.patches = means.flatten(2).mT
        return self


@pytest.mark.parametrize('stride', [(2, 4), (4, 8)])
def test_dense_patches_lie_where_their_centres_are(stride):
    images = torch.randn(2, 3, 16, 24)
    dense = dense_patches(MeanEncoder(), images, stride)
    assert dense.shape == (2, 16 // stride[0], 24 // stride[1], 3)
    padded = np.pad(
        images.numpy(), ((0, 0), (0, 0), (2, 2), (4, 4)), mode='reflect'
    )
    for row in range(dense.shape[1]):
        for column in range(dense.shape[2]):
            # The patch around the centre of this cell.
            y = stride[0] * row + stride[0] // 2
            x = stride[1] * column + stride[1] // 2
            patch = padded[:, :, y : y + 4, x : x + 8]
            np.testing.assert_allclose(
                dense[:, row, column], patch.mean(axis=(2, 3)), atol=1e-6
            )


@pytest.mark.parametrize('centre', [None, 0.9])
@torch.no_grad()
def test_words_of_the_patches(centre):
    model = small_moca(codebook__centre=centre)
    if centre:
        mean = model.codebook.token_mean.normal_()
    inputs = torch.randn(3, 3, *SIZE)
    features, words = feature_and_word_colors(model, inputs)
    tokens = dense_patches(model.teacher, inputs, (1, 1))
    assert tokens.shape == (3, *SIZE, 16)
    if centre:
        mean = mean.unflatten(0, (4, 8))
        for dim in (0, 1):
            mean = mean.repeat_interleave(4, dim=dim)
        tokens = tokens - mean
    tokens = F.normalize(tokens, dim=-1).numpy()
    codebook = model.codebook.words.numpy()
    word = np.einsum('nhwd,kd->nhwk', tokens, codebook).argmax(axis=-1)
    assert len(np.unique(word)) > 2
    colors, word_colors = pca_colors(tokens, codebook)
    np.testing.assert_allclose(features, colors, atol=1e-4)
    np.testing.assert_allclose(words, word_colors[word], atol=1e-4)
