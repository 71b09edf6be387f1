# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The backbone is the same inside mmseg, and so are inherited configs."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import save_checkpoint

import mmmoca.engine  # noqa: F401  what the hooks of a config import
from mmmoca.checkpoints import CheckpointError
from mmmoca.checkpoints.pretrained_init import check_pretrained_inits

from ..helpers.checkpoint_files import randomise, with_prefix
from ..helpers.cityscapes import ARCH, CONFIGS, MASK, small_config
from ..helpers.images import DEMO_CONFIG
from ..helpers.runs import assert_same
from ..helpers.tools import install_configs


def test_outputs_equal_those_of_the_teacher(tmp_path):
    """The size is neither square nor that of the pretraining.

    Positions are resized bilinearly, as in Segmenter.
    """
    cfg = Config.fromfile(DEMO_CONFIG)
    cfg.model.backbone.update(arch=ARCH, tap_layer=2)
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    moca = MODELS.build(cfg.model).eval()
    for parameter in moca.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    path = tmp_path / 'epoch_1.pth'
    save_checkpoint(dict(state_dict=moca.state_dict()), str(path))
    moca.teacher.interpolate_mode = 'bilinear'

    init = dict(checkpoint=f'mmmoca-teacher://{path}', prefix='backbone.')
    options = {
        'model.backbone.img_size': (64, 96),
        'model.backbone.init_cfg': dict(type='Pretrained', **init),
    }
    cfg = small_config(MASK, tmp_path, tmp_path, **options)
    init_default_scope('mmseg')
    segmentor = MODELS.build(cfg.model).eval()
    segmentor.backbone.init_weights()
    images = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        (found,) = segmentor.extract_feat(images)
        expected = moca.teacher.encode(images).patches
    assert found.shape == (2, 64, 8, 12)
    torch.testing.assert_close(
        found.flatten(2).transpose(1, 2), expected, rtol=1e-5, atol=1e-5
    )


def test_vit_of_mmseg(tmp_path):
    """mmseg's ViT differs from mmpretrain's only in the names of attention.

    It reads ``init_cfg`` itself and ignores the prefix.
    """
    sizes = dict(embed_dims=64, num_layers=2, num_heads=2)
    mmpretrain = MODELS.build(
        dict(
            type='mmpretrain.VisionTransformer',
            arch=dict(sizes, feedforward_channels=256),
            img_size=32,
        )
    )
    file = f'{tmp_path}/a.pth'
    init = dict(type='Pretrained', checkpoint=file, prefix='backbone.')
    vit = dict(type='mmseg.VisionTransformer', img_size=32, init_cfg=init)
    mmseg = MODELS.build(vit | sizes)

    def save(model):
        state = with_prefix('backbone.', model.state_dict())
        save_checkpoint(dict(state_dict=state), file)

    save(mmpretrain)
    with pytest.raises(CheckpointError, match='mmpretrain.VisionTransformer'):
        check_pretrained_inits(mmseg)
    mmseg = MODELS.build(vit | sizes)
    expected = randomise(MODELS.build(vit | sizes), 1)
    save(expected)
    check_pretrained_inits(mmseg)
    mmseg.init_weights()
    assert_same(mmseg.state_dict(), expected.state_dict())


@pytest.mark.slow
def test_inherited_config_builds_the_same(streets, tmp_path, monkeypatch):
    """`_base_ = 'mmmoca::...'` marks all dicts with another scope."""
    path = tmp_path / 'mine.py'
    path.write_text(
        f"_base_ = 'mmmoca::_base_/../segmentation/{MASK}'\n"
        "model = dict(backbone=dict(init_cfg=dict(checkpoint='mine.pth')))\n"
    )

    install_configs(monkeypatch, tmp_path)
    inherited = Config.fromfile(path)
    assert inherited.model.backbone.init_cfg.checkpoint == 'mine.pth'
    assert inherited.test_dataloader.sampler._scope_ == 'mmmoca'
    built = []
    for cfg in (inherited, Config.fromfile(CONFIGS / MASK)):
        init_default_scope(cfg.default_scope)
        parts = [*MODELS.build(cfg.model).modules()]
        for loader in (cfg.train_dataloader, cfg.test_dataloader):
            loader.dataset.data_root = str(streets)
            parts += DATASETS.build(loader.dataset).pipeline.transforms
        built.append([type(part) for part in parts])
    assert built[0] == built[1]
