# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The full-size configs: parameters, rates and classes by the formulas."""

import copy
import re

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import HOOKS, MODELS

from ..tools import ROOT, install_configs
from .conftest import CONFIGS

pytestmark = pytest.mark.ops

CASCADE = 'cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'
RETINANET = 'retinanet_moca-vit-b16_fpn_1x_coco.py'
VITDET = 'mask-rcnn_moca-vit-b16_simple-fpn_lsj-100e_coco.py'
CHANNELS = 256


def build(cfg):
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def with_patches(name, size, strides=None):
    """A config with a small ViT of patches of this size."""
    cfg = Config.fromfile(CONFIGS / name)
    cfg.merge_from_dict(
        {
            'model.backbone.arch': 'deit-t',
            'model.backbone.init_cfg': None,
            'model.backbone.patch_size': size,
        }
    )
    pyramid, maps, *_ = cfg.model.neck
    pyramid.in_channels = 192
    maps.in_channels = [192] * len(maps.in_channels)
    if strides is not None:
        pyramid.strides = strides
    return cfg


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    'name, width, layers',
    [(CASCADE, 768, 12), (CASCADE.replace('-b16', '-l16'), 1024, 24)],
)
def test_parameters(name, width, layers):
    model = build(Config.fromfile(CONFIGS / name))
    patches = 3 * 16 * 16 * width + width
    tokens = (42 * 68 + 1) * width + width  # positions and [CLS]
    layer = 12 * width**2 + 13 * width
    assert count(model.backbone) == patches + tokens + layers * layer
    assert count(model.neck[1]) == 4 * (width + 1) * CHANNELS + 4 * (
        9 * CHANNELS**2 + CHANNELS
    )
    # Four 3 x 3 convolutions with norms, a layer of 1024, classes and boxes.
    box_head = 4 * (9 * CHANNELS**2 + 2 * CHANNELS) + (
        (49 * CHANNELS + 1) * 1024 + 1025 * 81 + 1025 * 4 * 80
    )
    # Four 3 x 3 convolutions, one transposed, masks of all classes.
    mask_head = 4 * (9 * CHANNELS**2 + CHANNELS) + (
        4 * CHANNELS**2 + CHANNELS + (CHANNELS + 1) * 80
    )
    assert count(model.roi_head) == 3 * (box_head + mask_head)


@pytest.mark.parametrize(
    'name, lr, decay, weight_decay',
    [(CASCADE, 2e-4, 0.75, 0.05), (VITDET, 1e-4, 0.7, 0.1)],
)
def test_learning_rates(name, lr, decay, weight_decay):
    """Which parameter has which is test_layer_decay's matter."""
    cfg = Config.fromfile(CONFIGS / name)
    wrapper = build_optim_wrapper(build(cfg), cfg.optim_wrapper)
    groups = wrapper.optimizer.param_groups
    # The stem, twelve layers, and all that follows.
    rates = [lr * decay**power for power in range(13, -1, -1)]
    assert sorted({group['lr'] for group in groups}) == pytest.approx(rates)
    assert {group['weight_decay'] for group in groups} == {0, weight_decay}


def class_counts(model):
    return {
        name: module.num_classes
        for name, module in model.named_modules()
        if hasattr(module, 'num_classes') and name != 'rpn_head'
    }


@pytest.mark.parametrize(
    'name, classes, heads',
    [
        ('cascade-mask-rcnn_moca-vit-b16_fpn_1x_lvis.py', 1203, 6),
        ('cascade-mask-rcnn_moca-vit-b16_fpn_1x_own-coco.py', 4, 6),
        (VITDET, 80, 2),
        (RETINANET, 80, 1),
    ],
)
def test_classes_of_the_configs(name, classes, heads):
    cfg = Config.fromfile(CONFIGS / name)
    counts = class_counts(build(cfg))
    assert len(counts) == heads and set(counts.values()) == {classes}
    assert cfg.model.num_classes == classes


@pytest.mark.parametrize(
    'name, losses',
    [
        (VITDET, ('rpn_cls', 'rpn_bbox', 'cls', 'bbox', 'mask')),
        (RETINANET, ('cls', 'bbox')),
    ],
)
def test_other_detectors_train(name, losses):
    """With a small ViT: all parameters get a finite gradient."""
    from mmdet.testing import demo_mm_inputs

    cfg = with_patches(name, 16)
    if name == VITDET:
        cfg.model.train_cfg.rcnn.sampler.num = 16
        assert cfg.model.data_preprocessor.pad_size_divisor == 1024
        cfg.model.data_preprocessor.pad_size_divisor = 128
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    shapes = [(3, 64, 96), (3, 80, 64)]
    data = demo_mm_inputs(2, shapes, [3, 2], 80, with_mask=True)
    seen = []
    model.backbone.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].shape[2:])
    )
    batch = model.data_preprocessor(copy.deepcopy(data), training=True)
    found = model(**batch, mode='loss')
    assert {f'loss_{loss}' for loss in losses} <= set(found)
    with torch.no_grad():
        model.eval()(**model.data_preprocessor(data), mode='predict')
    padded = (128, 128) if name == VITDET else (96, 96)
    assert seen == [padded, padded]
    if name == VITDET:
        for sample in batch['data_samples']:
            assert sample.gt_instances.masks.masks.shape[1:] == padded
    loss, _ = model.parse_losses(found)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def strides_of_14(count):
    return [7 * 2.0**n for n in range(-1, count - 1)]


@pytest.mark.parametrize(
    'name, size, strides, options',
    [
        (CASCADE, 8, None, {}),
        (
            CASCADE,
            14,
            strides_of_14(4),
            {
                'rpn_head.anchor_generator.strides': strides_of_14(5),
                'roi_head.bbox_roi_extractor.featmap_strides': (
                    strides_of_14(4)
                ),
            },
        ),
        (
            RETINANET,
            14,
            strides_of_14(4)[1:],
            {'bbox_head.anchor_generator.strides': strides_of_14(6)[1:]},
        ),
    ],
)
def test_other_patches(name, size, strides, options):
    """Anchors and regions lie where the maps' cells are."""
    cfg = with_patches(name, size, strides)
    cfg.merge_from_dict({f'model.{key}': options[key] for key in options})
    model = MODELS.build(cfg.model).eval()
    side = 16 * size
    with torch.no_grad():
        maps = model.extract_feat(torch.zeros(1, 3, side, side))
    sizes = [x.shape[-2:] for x in maps]
    head = model.rpn_head if name == CASCADE else model.bbox_head
    priors = head.prior_generator.grid_priors(sizes, device='cpu')
    for (rows, columns), boxes in zip(sizes, priors):
        left = boxes[:, 0].unflatten(0, (rows, columns, -1))
        steps = left.diff(dim=1)
        expected = torch.full_like(steps, side / columns)
        torch.testing.assert_close(steps, expected)
    if name == CASCADE:
        layers = model.roi_head.bbox_roi_extractor[2].roi_layers
        assert [1 / layer.spatial_scale for layer in layers] == [
            side / columns for _, columns in sizes[:4]
        ]


def test_fixed_size_of_vitdet():
    """Crops, padding, test images and positions have the same."""
    cfg = Config.fromfile(CONFIGS / VITDET)
    side = cfg.model.data_preprocessor.pad_size_divisor
    train, test = (
        {step.type: step for step in loader.dataset.pipeline}
        for loader in (cfg.train_dataloader.dataset, cfg.test_dataloader)
    )
    assert train['RandomCrop'].crop_size == (side, side)
    assert test['Resize'].scale == (side, side) and test['Resize'].keep_ratio
    assert cfg.model.backbone.img_size == side
    assert cfg.val_dataloader.dataset == cfg.test_dataloader.dataset


def test_configs_of_the_docs(tmp_path, monkeypatch):
    """Inherited by the name of the package; other classes, other patches."""
    install_configs(monkeypatch, tmp_path)
    path = tmp_path / 'mine.py'
    text = (ROOT / 'docs' / 'guides' / 'detect.md').read_text()
    classes, patches, _ = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    path.write_text(patches)
    model = build(Config.fromfile(path))
    assert model.neck[0].patch_size == 14
    # A neck that is no list keeps its parameters' names.
    cfg = Config.fromfile(CONFIGS / RETINANET)
    cfg.model.neck = dict(cfg.model.neck[-1], in_channels=[768] * 4)
    names = dict(build(cfg).neck.named_parameters())
    assert 'lateral_convs.0.conv.weight' in names
    path.write_text(classes)
    cfg = Config.fromfile(path)
    assert set(class_counts(build(cfg)).values()) == {7}
    for name in ('checkpoint_fit', 'step_log', 'num_class_check'):
        assert cfg.default_hooks[name]['_scope_'] == 'mmmoca'
        HOOKS.build(cfg.default_hooks[name])
    assert cfg.train_dataloader.dataset['_scope_'] == 'mmdet'
