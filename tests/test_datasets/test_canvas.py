# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import numpy as np
import pytest
import torch
from mmengine.dataset import default_collate

from mmmoca.datasets import PackCanvas, functional

from .photos import photo


@pytest.mark.parametrize('size', [256, (200, 256)])
def test_a_small_image_stays_what_it_is(size):
    packed = PackCanvas(size)(dict(img=photo(), img_path='a', sample_idx=3))
    canvas, shape = (packed['inputs'][key] for key in ('canvas', 'size'))
    side = size if isinstance(size, int) else 200
    assert canvas.shape == (side, 256, 3) and shape.tolist() == [180, 240]
    np.testing.assert_array_equal(canvas[:180, :240], photo())
    assert not canvas[180:].any() and not canvas[:, 240:].any()
    assert packed['data_samples'].img_path == 'a'


@pytest.mark.parametrize(
    'shape, fitted',
    [((180, 240), (90, 120)), ((240, 90), (120, 45)), ((2000, 3), (120, 1))],
)
def test_a_large_one_is_shrunk_to_fit(shape, fitted):
    img = photo(0, *shape)
    inputs = PackCanvas(120)(dict(img=img))['inputs']
    assert inputs['size'].tolist() == list(fitted)
    np.testing.assert_array_equal(
        inputs['canvas'][: fitted[0], : fitted[1]],
        functional.resize(img, fitted),
    )


def test_images_of_any_size_make_one_batch():
    pack, shapes = PackCanvas(64), [(64, 20), (100, 300), (1, 1)]
    batch = default_collate([pack(dict(img=photo(0, *s))) for s in shapes])
    assert batch['inputs']['canvas'].shape == (3, 64, 64, 3)
    assert batch['inputs']['size'].tolist() == [[64, 20], [21, 64], [1, 1]]
    assert batch['inputs']['canvas'].dtype == torch.uint8
    grey = pack(dict(img=photo()[..., 0]))['inputs']['canvas']
    assert grey.shape == (64, 64, 1)


def test_bad_arguments():
    for size in (0, (3, 4, 5), (4, -1)):
        with pytest.raises(ValueError, match='number of pixels'):
            PackCanvas(size)
    with pytest.raises(ValueError, match='uint8.*float32'):
        PackCanvas()(dict(img=photo().astype(np.float32)))
