# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of images in one process; test_ranks tests several."""

import torch

from mmmoca.evaluation.features import raw_pixels


def test_raw_pixels_of_large_images():
    ramp = torch.linspace(-1, 1, 96).expand(1, 1, 64, 96)
    pixels = raw_pixels(ramp).reshape(32, 48)
    expected = raw_pixels(ramp.reshape(1, 1, 64, 48, 2).mean(-1)[:, :, ::2])
    torch.testing.assert_close(
        pixels, expected.reshape(32, 48), atol=0.02, rtol=0
    )
