# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of images; see also test_encoder and test_knn_loop."""

import pytest
import torch
from mmpretrain.structures import DataSample

from mmmoca.evaluation.features import extract_features, raw_pixels


def test_not_finite():
    """Those of a loop are in test_knn_loop."""
    batch = dict(inputs=torch.zeros(1), data_samples=DataSample())
    encoders = dict(of_zero=lambda inputs: 1 / inputs)
    with pytest.raises(ValueError, match='not finite'):
        extract_features([batch], lambda data, training: data, encoders)


def test_raw_pixels_of_large_images():
    ramp = torch.linspace(-1, 1, 96).expand(1, 1, 64, 96)
    pixels = raw_pixels(ramp).reshape(32, 48)
    expected = raw_pixels(ramp.reshape(1, 1, 64, 48, 2).mean(-1)[:, :, ::2])
    torch.testing.assert_close(
        pixels, expected.reshape(32, 48), atol=0.02, rtol=0
    )
