# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch
from mmpretrain.models.utils import SelfSupDataPreprocessor
from mmpretrain.registry import MODELS

from mmmoca.models import ViewsDataPreprocessor

from ..builders import moca_config

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def images(channels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = 2, channels, 4, 6
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize('to_rgb', [False, True])
def test_numbers_of_mmpretrain(to_rgb):
    options = dict(mean=MEAN, std=STD, to_rgb=to_rgb)
    ours = ViewsDataPreprocessor(**options)
    theirs = SelfSupDataPreprocessor(**options)
    for inputs in (images(), [images(), images(seed=1)]):
        samples = [object(), object()]
        batch = dict(inputs=inputs, data_samples=samples)
        actual, expected = ours(batch), theirs(batch)
        assert actual['data_samples'] is samples
        torch.testing.assert_close(
            actual['inputs'], expected['inputs'], rtol=0, atol=0
        )
        assert isinstance(actual['inputs'], type(inputs))


def test_one_number_for_all_channels_or_none():
    x = images(channels=5)
    scaled = ViewsDataPreprocessor(mean=[10], std=[4])(dict(inputs=x))
    torch.testing.assert_close(scaled['inputs'], (x.float() - 10) / 4)
    plain = ViewsDataPreprocessor()(dict(inputs=x))
    assert torch.equal(plain['inputs'], x.float())


@pytest.mark.parametrize(
    'options', [dict(mean=MEAN, std=STD), dict(to_rgb=True)]
)
def test_no_band_is_dropped(options):
    with pytest.raises(ValueError, match='5 channels.*for 3.*in_channels=5'):
        ViewsDataPreprocessor(**options)(dict(inputs=[images(channels=5)]))


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(mean=MEAN), 'std=None'),
        (dict(mean=MEAN, std=[1.0]), 'one number for each channel'),
        (dict(mean=[0] * 5, std=[1] * 5, to_rgb=True), 'to_rgb=False'),
        (dict(mean=MEAN, std=[1, 0, 1]), 'std must be above 0'),
    ],
)
def test_numbers_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        ViewsDataPreprocessor(**options)


def test_other_channels_than_the_backbone():
    """Also with mmpretrain's own preprocessor, which would drop bands."""
    for kind in ('SelfSupDataPreprocessor', 'mmmoca.ViewsDataPreprocessor'):
        preprocessor = dict(type=kind, mean=MEAN, std=STD)
        with pytest.raises(ValueError, match='in_channels is 2.*3 numbers'):
            MODELS.build(moca_config(data_preprocessor=preprocessor))
