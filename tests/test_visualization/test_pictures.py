# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images, masks and features as pictures."""

import numpy as np
import pytest
import torch

from mmmoca.visualization.pictures import (
    masked_picture,
    pca_colors,
    to_picture,
)


@pytest.mark.parametrize(
    'channels, bgr, shown',
    [(2, True, [0, 0, 0]), (3, False, [0, 1, 2]), (5, True, [2, 1, 0])],
)
def test_channels_of_a_picture(channels, bgr, shown):
    image = torch.randint(0, 256, (channels, 4, 6), dtype=torch.uint8)
    expected = image[shown].permute(1, 2, 0).numpy() / 255
    np.testing.assert_array_equal(to_picture(image, bgr), expected)


def test_bands_are_stretched():
    image = torch.arange(24).reshape(1, 4, 6) * 2000.0 - 7
    picture = to_picture(image)[..., 0].ravel()
    np.testing.assert_allclose(picture, np.arange(24) / 23, rtol=1e-6)
    assert to_picture(torch.full((3, 4, 6), 9.0)).max() == 0


def test_masked_picture_shows_the_visible_patches_only():
    picture = np.random.default_rng(0).uniform(0.2, 0.3, (24, 48, 3))
    result = masked_picture(
        picture, np.array([1, 3]), np.array([0, 5]), grid=(2, 3)
    )
    for index in range(6):
        row, column = divmod(index, 3)
        place = np.s_[12 * row : 12 * row + 12, 16 * column : 16 * column + 16]
        tones = np.unique(result[place].reshape(-1, 3), axis=0)
        if index in (1, 3):
            np.testing.assert_array_equal(result[place], picture[place])
        elif index in (0, 5):
            grey = (np.ptp(result[place], axis=2) == 0).mean()
            assert len(tones) == 2 and 0.5 < grey < 0.75
        else:
            assert len(tones) == 1 and np.ptp(tones) == 0


def test_colours_are_components_scaled_in_each_image():
    features = np.random.default_rng(0).standard_normal((2, 250, 5))
    features *= [5, 4, 3, 0.1, 0.1]
    features[1] *= 0.2  # should look as vivid as the first
    flat = features.reshape(-1, 5)
    centred = flat - flat.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:3]
    components = (centred @ axes.T).reshape(2, 250, 3)
    low, high = np.percentile(components, (2, 98), axis=1, keepdims=True)
    expected = np.clip((components - low) / (high - low), 0, 1)
    colors, other = pca_colors(features.reshape(2, 10, 25, 5), features[:, :7])
    colors = colors.reshape(2, 250, 3)
    np.testing.assert_allclose(other, colors[:, :7])  # with the same map
    # The signs of components are arbitrary.
    flipped = np.abs(colors - expected).max(axis=(0, 1)) > 0.5
    expected = np.where(flipped, 1 - expected, expected)
    np.testing.assert_allclose(colors, expected, atol=1e-6)
