# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmpretrain.registry import MODELS
from torch._subclasses.fake_tensor import FakeTensorMode

from mmmoca.datasets.functional import resize
from mmmoca.models import ViewsDataPreprocessor
from projects.gpu_views.canvas import PackCanvas
from projects.gpu_views.preprocessor import AugmentingViewsPreprocessor
from tests.helpers.images import DEMO_CONFIG
from tests.helpers.photos import photo
from tests.helpers.runs import assert_same, demo_runner
from tests.helpers.transfers import Transfers

CONFIG = 'projects/gpu_views/configs/moca_vit-b16_200e_gpu-views.py'
# Without attempts the crop is the whole image, which already has the size
# ``scale``.
WHOLE = dict(
    type='mmmoca.RandomResizedCrop',
    scale=(24, 32),
    max_attempts=0,
    aspect_ratio_range=(1.0, 2.0),
)
NUMBERS = dict(mean=[1, 2, 3], std=[4, 5, 6], to_rgb=True)


def batch_of(count):
    pack = PackCanvas(size=(40, 36))
    return default_collate(
        [pack(dict(img=photo(i, 24, 32), img_path='a')) for i in range(count)]
    )


def recipe(**options):
    cfg = Config.fromfile(CONFIG).model.data_preprocessor
    return MODELS.build(cfg | dict(compile=False) | options)


@pytest.mark.parametrize('shape', [(180, 240), (240, 90), (2000, 3), (50, 9)])
def test_large_images_are_shrunk_into_their_canvas(shape):
    inputs = PackCanvas(120)(dict(img=photo(0, *shape)))['inputs']
    height, width = inputs['size'].tolist()
    expected = photo(0, *shape)
    if max(shape) > 120:
        assert max(height, width) == 120
        expected = resize(expected, (height, width))
    found = inputs['canvas'].numpy()
    np.testing.assert_array_equal(found[:height, :width], expected)
    assert not found[height:].any() and not found[:, width:].any()


def test_views_are_normalised_as_on_the_cpu():
    images = [torch.from_numpy(photo(i, 24, 32)) for i in range(3)]
    expected = ViewsDataPreprocessor(**NUMBERS)(
        dict(inputs=torch.stack(images).movedim(3, 1))
    )['inputs']
    prepare = AugmentingViewsPreprocessor([[WHOLE], [WHOLE]], **NUMBERS)
    views = prepare(batch_of(3), True)['inputs']
    assert len(views) == 2
    assert all(torch.equal(view, expected) for view in views)


@pytest.mark.parametrize(
    'change, expected',
    [
        (dict(type='Solarize', thr=0), lambda x: 255 - x),
        (dict(type='RandomFlip'), lambda x: x.flip(3)),
        (dict(type='RandomFlip', direction='vertical'), lambda x: x.flip(2)),
    ],
)
def test_probabilities(change, expected):
    batch = batch_of(1)['inputs']
    batch = {k: v.expand(2000, *v.shape[1:]) for k, v in batch.items()}
    change = change | dict(prob=0.3)
    prepare = AugmentingViewsPreprocessor([[WHOLE], [WHOLE, change]])
    plain, views = prepare(dict(inputs=batch))['inputs']
    changed = (views != plain).flatten(1).any(1)
    assert changed.float().mean() == pytest.approx(0.3, abs=0.04)
    assert torch.equal(views[changed], expected(plain[changed]))


@pytest.mark.slow
@pytest.mark.skipif(
    torch.__version__ < '2.7' and not torch.cuda.is_available(),
    reason='fake tensors of PyTorch 2.6 ask for the GPU',
)
def test_two_copies_to_the_device_that_do_not_block():
    batch = batch_of(4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        prepare = recipe().to('cuda')
        with Transfers() as seen:
            views = prepare(batch, True)['inputs']
    assert seen.waiting == [] and seen.copies == 2  # canvases and sizes
    assert [view.shape for view in views] == [(4, 3, 224, 224)] * 2
    assert {view.device.type for view in views} == {'cuda'}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_a_gpu_makes_the_views_of_the_cpu():
    """The GPU's views are made in half precision and compiled."""
    inputs, prepare = batch_of(8)['inputs'], recipe(compile=True)
    for view, make in zip(prepare.views, prepare.makers):
        arguments = *inputs.values(), torch.rand(8, view.numbers)
        expected = view.make(*arguments)
        actual = make(*(x.cuda() for x in arguments)).cpu()
        difference = (actual - expected).abs()
        assert difference.mean() < 0.3
        assert (difference > 3).float().mean() < 1e-3


@pytest.mark.slow
def test_a_resumed_run_sees_the_same_views(root):
    cfg = Config.fromfile(DEMO_CONFIG)
    pack = dict(type='mmmoca.PackCanvas', size=(64, 80))
    options = {
        'train_dataloader.dataset.pipeline': [*cfg.train_pipeline[:2], pack],
        'model.data_preprocessor.type': 'mmmoca.AugmentingViewsPreprocessor',
        'model.data_preprocessor.views': [
            cfg.view_pipeline1,
            cfg.view_pipeline2,
        ],
        'train_cfg.max_iters': 4,
        'train_cfg.val_interval': 100,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    whole = demo_runner(root, 'device', **options)
    whole.train()
    resume = dict(resume=True, load_from=str(root / 'device' / 'iter_2.pth'))
    resumed = demo_runner(root, 'device_resumed', **options, **resume)
    resumed.train()
    assert_same(resumed.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize(
    'view, word',
    [
        ([], 'RandomResizedCrop'),
        ([WHOLE | dict(interpolation='bicubic')], 'bilinear'),
        ([WHOLE, dict(type='Posterize', bits=3)], 'Posterize'),
        (
            [WHOLE, dict(type='RandomFlip', prob=0.5, direction='diagonal')],
            'diagonal',
        ),
        (
            [WHOLE, dict(type='mmmoca.GaussianBlur', magnitude_range=(1, 2))],
            'magnitude_std',
        ),
    ],
)
def test_recipes_that_cannot_be_done(view, word):
    with pytest.raises(ValueError, match=word):
        AugmentingViewsPreprocessor([[WHOLE], view])
