# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Full-size configs: parameters, rates and classes follow formulas."""

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import HOOKS, MODELS

from mmmoca.engine.config import read_run

from ..helpers.shapes import CONFIGS
from ..helpers.tools import install_configs, snippets

pytestmark = pytest.mark.ops

CASCADE = 'cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'
RETINANET = 'retinanet_moca-vit-b16_fpn_1x_coco.py'
VITDET = 'mask-rcnn_moca-vit-b16_simple-fpn_lsj-100e_coco.py'


def build(cfg):
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def small(path):
    """Return a config with a small ViT and random weights."""
    cfg = Config.fromfile(path)
    cfg.model.backbone.update(arch='deit-t', init_cfg=None)
    pyramid, maps, *_ = cfg.model.neck
    pyramid.in_channels = 192
    maps.in_channels = [192] * len(maps.in_channels)
    return cfg


@pytest.mark.parametrize(
    'name, lr, decay, weight_decay',
    [(CASCADE, 2e-4, 0.75, 0.05), (VITDET, 1e-4, 0.7, 0.1)],
)
def test_learning_rates(name, lr, decay, weight_decay):
    """test_layer_decay checks which parameter has which rate."""
    cfg = Config.fromfile(CONFIGS / name)
    wrapper = build_optim_wrapper(build(cfg), cfg.optim_wrapper)
    groups = wrapper.optimizer.param_groups
    # The groups are the stem, twelve layers, and all parts after them.
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
    'name, losses',
    [
        (VITDET, ('rpn_cls', 'rpn_bbox', 'cls', 'bbox', 'mask')),
        (RETINANET, ('cls', 'bbox')),
    ],
)
def test_other_detectors_train(name, losses):
    """All parameters get a finite gradient, since DDP waits for each."""
    from mmdet.testing import demo_mm_inputs

    cfg = small(CONFIGS / name)
    cfg.model.data_preprocessor.pad_size_divisor = 32
    if name == VITDET:
        cfg.model.train_cfg.rcnn.sampler.num = 16
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    shapes = [(3, 64, 96), (3, 80, 64)]
    data = demo_mm_inputs(2, shapes, [3, 2], 80, with_mask=True)
    batch = model.data_preprocessor(data, training=True)
    found = model(**batch, mode='loss')
    assert {f'loss_{loss}' for loss in losses} <= set(found)
    loss, _ = model.parse_losses(found)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize('size', [8, 14])
def test_other_patches(tmp_path, monkeypatch, size):
    """Anchors and RoI strides match the cells of the feature maps."""
    path = CONFIGS / CASCADE
    if size == 14:  # the docs' example
        install_configs(monkeypatch, tmp_path)
        path = tmp_path / 'mine.py'
        path.write_text(snippets('docs/guides/detect.md', 'python')[2])
    cfg = small(path)
    cfg.model.backbone.patch_size = size
    model = MODELS.build(cfg.model).eval()
    side = 16 * size
    with torch.no_grad():
        maps = model.extract_feat(torch.zeros(1, 3, side, side))
    sizes = [x.shape[-2:] for x in maps]
    priors = model.rpn_head.prior_generator.grid_priors(sizes, device='cpu')
    for (rows, columns), boxes in zip(sizes, priors, strict=True):
        left = boxes[:, 0].unflatten(0, (rows, columns, -1))
        steps = left.diff(dim=1)
        expected = torch.full_like(steps, side / columns)
        torch.testing.assert_close(steps, expected)
    for extractor in (
        model.roi_head.bbox_roi_extractor[2],
        model.roi_head.mask_roi_extractor[2],
    ):
        assert [1 / layer.spatial_scale for layer in extractor.roi_layers] == [
            side / columns for _, columns in sizes[:4]
        ]


def test_own_classes(tmp_path, monkeypatch):
    """The docs' config inherits ours through the package's name."""
    install_configs(monkeypatch, tmp_path)
    path = tmp_path / 'mine.py'
    path.write_text(snippets('docs/guides/detect.md', 'python')[0])
    cfg = read_run(path)
    assert set(class_counts(build(cfg)).values()) == {2}
    path.write_text(snippets('docs/guides/detect.md', 'python')[1])
    cfg = Config.fromfile(path)
    assert set(class_counts(build(cfg)).values()) == {7}
    for name in ('checkpoint_fit', 'step_log', 'num_class_check'):
        assert cfg.default_hooks[name]['_scope_'] == 'mmmoca'
        HOOKS.build(cfg.default_hooks[name])
    assert cfg.train_dataloader.dataset['_scope_'] == 'mmdet'


def test_neck_that_is_no_list_keeps_its_names():
    cfg = Config.fromfile(CONFIGS / RETINANET)
    cfg.model.neck = dict(cfg.model.neck[-1], in_channels=[768] * 4)
    names = dict(build(cfg).neck.named_parameters())
    assert 'lateral_convs.0.conv.weight' in names
