# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch
from mmpretrain.models.utils import SelfSupDataPreprocessor

from mmmoca.models import ViewsDataPreprocessor

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def images(channels=3):
    return torch.randint(256, (2, channels, 4, 6), dtype=torch.uint8)


@pytest.mark.parametrize('to_rgb', [False, True])
def test_numbers_of_mmpretrain(to_rgb):
    options = dict(mean=MEAN, std=STD, to_rgb=to_rgb)
    ours = ViewsDataPreprocessor(**options)
    theirs = SelfSupDataPreprocessor(**options)
    for inputs in (images(), [images(), images()]):
        samples = [object(), object()]
        batch = dict(inputs=inputs, data_samples=samples)
        actual, expected = ours(batch), theirs(batch)
        assert actual['data_samples'] is samples
        torch.testing.assert_close(
            actual['inputs'], expected['inputs'], rtol=0, atol=0
        )


def test_one_number_for_all_channels_or_none():
    x = images(channels=5)
    scaled = ViewsDataPreprocessor(mean=[10], std=[4])(dict(inputs=x))
    torch.testing.assert_close(scaled['inputs'], (x.float() - 10) / 4)
    plain = ViewsDataPreprocessor()(dict(inputs=x))
    assert torch.equal(plain['inputs'], x.float())
