# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import functools
from unittest import mock

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmpretrain.registry import MODELS
from torch._subclasses.fake_tensor import FakeTensorMode

from mmmoca.datasets import PackCanvas
from mmmoca.engine.steps import mix_seed
from mmmoca.models import ViewsDataPreprocessor, view_functional
from mmmoca.models.fusion import fused

from ..images import CONFIGS
from ..test_datasets.photos import photo
from ..test_engine.test_no_sync import Transfers

# The whole image as it is: the box of the last resort is all of it.
WHOLE = dict(
    type='mmmoca.RandomResizedCrop',
    scale=(24, 32),
    max_attempts=0,
    aspect_ratio_range=(1.0, 2.0),
)
JITTER = dict(
    type='mmmoca.ColorJitter', brightness=0.4, saturation=0.2, hue=0.1
)


def build(*views, **options):
    cfg = dict(type='mmmoca.AugmentingViewsPreprocessor', views=views)
    return MODELS.build(cfg | options)


def batch_of(count, **sizes):
    pack = PackCanvas(size=(40, 36))
    sizes = dict(height=24, width=32) | sizes
    return default_collate(
        [
            pack(dict(img=photo(i, **sizes), img_path=f'{i}'))
            for i in range(count)
        ]
    )


def views_of(prepare, batch, seed=0):
    torch.manual_seed(seed)
    return prepare(batch, True)['inputs']


def test_views_are_normalised_and_samples_kept():
    batch = batch_of(3)
    options = dict(mean=[1, 2, 3], std=[4, 5, 6], to_rgb=True)
    data = build([WHOLE], [WHOLE], **options)(batch, True)
    images = torch.stack(
        [torch.from_numpy(photo(i, 24, 32)) for i in range(3)]
    ).movedim(3, 1)
    expected = ViewsDataPreprocessor(**options)(dict(inputs=images))
    for view in data['inputs']:
        torch.testing.assert_close(view, expected['inputs'], rtol=0, atol=0)
    paths = [sample.img_path for sample in data['data_samples']]
    assert paths == ['0', '1', '2']


def test_images_that_are_no_canvases_are_prepared_as_ever():
    images = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8)
    options = dict(mean=[1, 2, 3], std=[4, 5, 6], to_rgb=True)
    actual = build([WHOLE], **options)(dict(inputs=images), False)
    expected = ViewsDataPreprocessor(**options)(dict(inputs=images))
    assert torch.equal(actual['inputs'], expected['inputs'])


INVERTED = dict(type='Solarize', thr=0)
CHANGES = dict(
    grey=(
        dict(type='mmmoca.RandomGrayscale'),
        lambda x: (x - x.mean(1, keepdim=True)).abs().amax((1, 2, 3)) == 0,
    ),
    solarize=(INVERTED, None),
    blur=(dict(type='mmmoca.GaussianBlur', radius=2.0), None),
    horizontal=(dict(type='RandomFlip'), lambda x: x.flip(3)),
    vertical=(
        dict(type='RandomFlip', direction='vertical'),
        lambda x: x.flip(2),
    ),
    diagonal=(
        dict(type='RandomFlip', direction='diagonal'),
        lambda x: x.flip(2, 3),
    ),
    apply=(
        dict(type='RandomApply', transforms=[INVERTED | dict(prob=1.0)]),
        None,
    ),
    apply_two=(
        dict(
            type='RandomApply',
            transforms=[
                INVERTED | dict(prob=0.6),
                dict(type='RandomFlip', prob=0.0),
            ],
        ),
        None,
    ),
)


@pytest.mark.parametrize('name', CHANGES)
def test_probabilities(name):
    change, expected = CHANGES[name]
    batch = batch_of(1)['inputs']
    batch = {k: v.expand(2000, *v.shape[1:]) for k, v in batch.items()}
    (plain,) = build([WHOLE])(dict(inputs=batch))['inputs']
    prepare = build([WHOLE, change | dict(prob=0.3)])
    (views,) = views_of(prepare, dict(inputs=batch))
    changed = (views != plain).flatten(1).any(1)
    share = 0.3 * (0.6 if name == 'apply_two' else 1)
    assert changed.float().mean() == pytest.approx(share, abs=0.04)
    # All changed ones are the same.
    assert (views[changed] == views[changed][:1]).all()
    if name == 'grey':
        assert torch.equal(changed, expected(views))
    elif expected:
        assert torch.equal(views[changed], expected(plain[changed]))


def test_amounts_are_drawn_from_their_ranges():
    """A grey canvas shows the factor of its brightness."""
    jitter = dict(type='mmmoca.ColorJitter', brightness=(0.5, 0.75))
    canvas = torch.full((3000, 2, 2, 3), 200, dtype=torch.uint8)
    inputs = dict(canvas=canvas, size=torch.full((3000, 2), 2))
    (views,) = views_of(build([WHOLE, jitter]), dict(inputs=inputs))
    levels = views[:, 0, 0, 0]
    assert (levels.min(), levels.max()) == (100, 149)
    counts = torch.bincount(levels.int())[100:150].float()  # 60 each
    assert len(counts) == 50 and counts.min() > 30 and counts.max() < 95


def test_a_part_of_a_magnitude_s_range():
    """As MMPreTrain's ``random_magnitude`` reads its arguments."""
    for options, ends in (
        (dict(magnitude_std='inf', magnitude_level=5), (100, 125)),
        (dict(magnitude_level=5), (125, 125)),
    ):
        solarize = dict(type='Solarize', magnitude_range=(100, 150), prob=1.0)
        canvas = torch.arange(256, dtype=torch.uint8)[:, None].expand(-1, 3)
        inputs = dict(
            canvas=canvas.expand(500, 1, 256, 3),
            size=torch.tensor([[1, 256]] * 500),
        )
        crop = WHOLE | dict(scale=(1, 256), aspect_ratio_range=(1, 256))
        prepare = build([crop, solarize | options])
        (views,) = views_of(prepare, dict(inputs=inputs))
        thresholds = (views == torch.arange(256)).sum(-1).flatten(1)[:, 0]
        found = (thresholds.min().item(), thresholds.max().item())
        assert found == pytest.approx(ends, abs=1)


def test_each_image_and_view_and_rank_has_draws_of_its_own():
    batch = batch_of(1)['inputs']
    batch = {k: v.expand(8, *v.shape[1:]) for k, v in batch.items()}
    view = [dict(type='mmmoca.RandomResizedCrop', scale=24), JITTER]
    prepare = build(view, view)
    draw = functools.partial(views_of, prepare, dict(inputs=batch))
    ranks = [draw(mix_seed(0, rank, 3)) for rank in (0, 1)]
    views = torch.cat([view for views in ranks for view in views])
    assert len(views.flatten(1).unique(dim=0)) == len(views) == 32
    again = draw(mix_seed(0, 1, 3))
    assert all(map(torch.equal, again, ranks[1]))


def test_autocast_does_not_blur_the_levels():
    batch, prepare = batch_of(2, height=40, width=36), build([WHOLE])
    (expected,) = prepare(batch)['inputs']
    with torch.autocast('cpu', torch.bfloat16):
        (actual,) = prepare(batch)['inputs']
    assert torch.equal(actual, expected)


def test_compiled_views_are_the_same():
    """In one graph: a break would be a read by the host."""
    torch.compiler.reset()
    (view,) = build(
        [
            dict(type='mmmoca.RandomResizedCrop', scale=24),
            dict(type='RandomApply', transforms=[JITTER], prob=0.8),
            dict(type='mmmoca.GaussianBlur', radius=1.0),
            dict(type='RandomFlip', prob=0.5),
        ]
    ).views
    inputs = batch_of(4)['inputs']
    numbers = torch.rand(4, view.numbers)
    fused = torch.compile(view.make, backend='aot_eager', fullgraph=True)
    actual = fused(inputs['canvas'], inputs['size'], numbers)
    expected = view.make(inputs['canvas'], inputs['size'], numbers)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def recipe():
    config = CONFIGS / 'moca_vit-b16_200e_gpu-views.py'
    return MODELS.build(Config.fromfile(config).model.data_preprocessor)


def test_the_host_reads_nothing():
    """Tensors of the meta device have no values."""
    prepare = recipe().to('meta')
    autocast = functools.partial(torch.autocast, 'cpu')
    with pytest.MonkeyPatch.context() as patch:
        # Autocast does not know the meta device.
        patch.setattr(torch, 'autocast', lambda **_: autocast(enabled=False))
        views = prepare(batch_of(4), True)['inputs']
    assert [view.shape for view in views] == [(4, 3, 224, 224)] * 2
    assert {view.device.type for view in views} == {'meta'}


def test_two_copies_to_the_device_that_do_not_block():
    batch = batch_of(4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        prepare = recipe().to('cuda')
        resize = mock.patch.object(
            view_functional, 'resize_boxes', wraps=view_functional.resize_boxes
        )
        with Transfers() as seen, resize as resized:
            views = prepare(batch, True)['inputs']
    assert seen.waiting == [] and seen.copies == 2  # canvases and sizes
    assert [c.args[-1] for c in resized.mock_calls] == [torch.float16] * 2
    for view in views:
        assert view.device.type == 'cuda' and view.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_a_gpu_makes_the_views_of_the_cpu():
    """In half precision and compiled."""
    inputs = batch_of(8, height=40, width=36)['inputs']
    for view in recipe().views:
        numbers = torch.rand(8, view.numbers)
        expected = view.make(inputs['canvas'], inputs['size'], numbers)
        arguments = [x.cuda() for x in (*inputs.values(), numbers)]
        actual = fused(view.make, arguments[0])(*arguments).cpu()
        difference = (actual - expected).abs()
        assert difference.mean() < 0.3
        assert (difference > 3).float().mean() < 1e-3


@pytest.mark.parametrize(
    'view, message',
    [
        ([], 'begin with mmmoca.RandomResizedCrop'),
        ([JITTER], 'begin with mmmoca.RandomResizedCrop.*ColorJitter'),
        ([WHOLE | dict(interpolation='bicubic')], "='bilinear', not"),
        ([WHOLE | dict(scales=3)], "'scales'"),
        ([WHOLE, JITTER | dict(hue=-0.1)], 'ColorJitter: If hue'),
        ([WHOLE, dict(type='Posterize', bits=3)], 'Posterize.*take one of'),
        ([WHOLE, dict(type='ColorJitter')], 'ColorJitter of mmpretrain'),
        ([WHOLE, dict(type='RandomFlip', prob=2.0)], 'RandomFlip: a value'),
        ([WHOLE, dict(type='RandomFlip', prob=[0.5])], 'RandomFlip'),
        ([WHOLE, INVERTED | dict(prob=1.5)], r'\[0, 1\] but got 1.5'),
        (
            [WHOLE, dict(type='mmmoca.GaussianBlur', radius=-1)],
            'radius must not be below 0',
        ),
        (
            [
                WHOLE,
                dict(
                    type='mmmoca.GaussianBlur',
                    magnitude_range=(0, 1),
                    magnitude_std=2,
                ),
            ],
            'magnitude_std="inf"',
        ),
    ],
)
def test_recipes_that_cannot_be_done(view, message):
    with pytest.raises(ValueError, match=rf'views\[1\]: .*{message}'):
        build([WHOLE], view)


def test_views_that_come_ready_made():
    with pytest.raises(ValueError, match='PackCanvas.*MultiView'):
        build([WHOLE])(dict(inputs=[torch.zeros(2, 3, 8, 8)] * 2))


def test_canvases_that_nobody_makes_views_of():
    with pytest.raises(ValueError, match='AugmentingViewsPreprocessor'):
        ViewsDataPreprocessor()(batch_of(2))
