# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of whole data sets, and of every place of an image."""

import numpy as np
import pytest
import torch
from mmpretrain.models.utils import SelfSupDataPreprocessor
from mmpretrain.structures import DataSample

from mmmoca.models import MOCAViT
from mmmoca.visualization import dense_patches, extract_features, raw_pixels


class MeanEncoder:
    """Describes each patch by the mean of its pixels."""

    patch_size = (4, 8)

    def encode(self, images):
        patches = images.unflatten(2, (-1, 4)).unflatten(4, (-1, 8))
        means = patches.mean(dim=(3, 5))  # (B, C, rows, columns)
        self.patches = means.flatten(2).mT
        return self


def test_raw_pixels():
    images = torch.rand(3, 2, 5, 7)
    pixels = images.flatten(1).numpy()
    expected = pixels - pixels.mean(axis=1, keepdims=True)
    expected /= pixels.std(axis=1, keepdims=True)
    np.testing.assert_allclose(raw_pixels(images).numpy(), expected, atol=1e-3)
    # Light and contrast do not count.
    torch.testing.assert_close(
        raw_pixels(images), raw_pixels(20 * images - 3), atol=1e-3, rtol=0
    )


def test_raw_pixels_of_large_images():
    ramp = torch.linspace(-1, 1, 96).expand(1, 1, 64, 96)
    pixels = raw_pixels(ramp).reshape(32, 48)
    expected = raw_pixels(ramp.reshape(1, 1, 64, 48, 2).mean(-1)[:, :, ::2])
    torch.testing.assert_close(
        pixels, expected.reshape(32, 48), atol=0.02, rtol=0
    )


def test_dense_patches_lie_where_their_centres_are():
    images = torch.randn(2, 3, 16, 24)
    dense = dense_patches(MeanEncoder(), images, (2, 4))
    assert dense.shape == (2, 8, 6, 3)
    padded = np.pad(
        images.numpy(), ((0, 0), (0, 0), (2, 2), (4, 4)), mode='reflect'
    )
    for row in range(8):
        for column in range(6):
            # The patch around the centre of this cell of 2 x 4 pixels.
            y, x = 2 * row + 1, 4 * column + 2
            patch = padded[:, :, y : y + 4, x : x + 8]
            np.testing.assert_allclose(
                dense[:, row, column], patch.mean(axis=(2, 3)), atol=1e-6
            )


def test_dense_patches_at_the_stride_of_the_patches():
    encoder = MOCAViT(
        arch=dict(
            embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32
        ),
        img_size=(16, 24),
        patch_size=8,
    )
    encoder.eval()
    images = torch.randn(2, 3, 16, 24)
    with torch.no_grad():
        expected = encoder.encode(images).patches.unflatten(1, (2, 3))
    torch.testing.assert_close(
        dense_patches(encoder, images, (8, 8)), expected
    )


def test_dense_patches_need_a_stride_that_fits():
    with pytest.raises(ValueError, match='must divide the patch size'):
        dense_patches(MeanEncoder(), torch.zeros(1, 3, 16, 24), (3, 4))


@pytest.mark.parametrize('labelled', [True, False])
def test_extract_features(labelled):
    images = torch.randint(0, 256, (7, 3, 4, 4), dtype=torch.uint8)
    dataset = []
    for index, image in enumerate(images):
        sample = DataSample()
        if labelled:
            sample.set_gt_label(index % 3)
        dataset.append(dict(inputs=image, data_samples=sample))
    preprocessor = SelfSupDataPreprocessor(
        mean=[10, 20, 30], std=[2, 4, 8], to_rgb=True
    )
    encoders = dict(
        mean=lambda inputs: inputs.mean(dim=(2, 3)),
        first=lambda inputs: inputs[:, :, 0, 0],
    )
    features, labels = extract_features(
        dataset, preprocessor, encoders, batch_size=3
    )
    inputs = images.flip(1).double().numpy()
    inputs = (inputs - np.reshape([10, 20, 30], (3, 1, 1))) / np.reshape(
        [2, 4, 8], (3, 1, 1)
    )
    for name, expected in (
        ('mean', inputs.mean(axis=(2, 3))),
        ('first', inputs[:, :, 0, 0]),
    ):
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(features[name], expected, atol=1e-5)
    if labelled:
        assert labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    else:
        assert labels is None
