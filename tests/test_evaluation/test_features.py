# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of a loader, batch by batch; those of images: test_encoder."""

import pytest
import torch
from mmpretrain.structures import DataSample
from torch.utils.data import DataLoader

from mmmoca.evaluation.features import (
    extract_features,
    extract_shard,
    raw_pixels,
)

FEATS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))


def _loader(batch_size=4, sampler=None):
    def collate(rows):
        samples = [
            DataSample(metainfo=dict(sample_idx=3 * row)).set_gt_label(row % 2)
            for row in rows
        ]
        return dict(inputs=torch.tensor(rows), data_samples=samples)

    return DataLoader(
        range(10), batch_size, False, sampler, collate_fn=collate
    )


def _extract(loader, feats=FEATS, **kwargs):
    model = torch.nn.Module()
    model.data_preprocessor = lambda batch, training: batch
    model.extract_feat = lambda inputs: feats[inputs]
    return extract_shard(model, loader, 'test', torch.neg, **kwargs)


def test_rows_in_order_of_the_loader():
    ids, feats, labels = _extract(_loader())
    assert ids.tolist() == list(range(0, 30, 3))
    assert labels.tolist() == [0, 1] * 5
    assert torch.equal(feats, -FEATS)
    half = _extract(_loader(), dtype=torch.float16).feats
    assert torch.equal(half, -FEATS.half())


def test_not_finite():
    feats = FEATS.clone()
    feats[9, 2] = torch.inf
    with pytest.raises(ValueError, match='not finite'):
        _extract(_loader(), feats)
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
