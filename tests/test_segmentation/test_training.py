# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Both protocols of the paper run in the real runner, on drawn streets."""

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmseg.structures import SegDataSample

from mmmoca.checkpoints import read_checkpoint
from mmmoca.engine.config import read_run

from ..helpers.checkpoint_files import (
    assert_goes_on,
    from_file,
    randomise,
    token_vit,
)
from ..helpers.cityscapes import CONFIGS, LINEAR, MASK, run, small_config
from ..helpers.runs import assert_same

pytestmark = pytest.mark.slow
OWN = 'segmenter_moca-vit-b16_mask_own-masks-512x512.py'
UPERNET = 'upernet_moca-vit-b16_ade20k-512x512.py'


def scores(runner):
    return runner.message_hub.get_scalar('val/mIoU').data[0]


def test_upernet_trains(streets, tmp_path):
    """UPerNet trains by iterations; test_layer_decay checks the rates."""
    cfg = small_config(MASK, streets, tmp_path)
    data = {
        f'{split}_dataloader.dataset': dict(
            _delete_=True, **cfg[f'{split}_dataloader'].dataset
        )
        for split in ('train', 'val', 'test')
    }
    runner = run(
        UPERNET,
        streets,
        tmp_path,
        **data,
        **{
            'train_cfg': dict(
                _delete_=True,
                type='IterBasedTrainLoop',
                max_iters=3,
                val_interval=3,
            ),
            # The warm-up is one step, and the loop determines the rest.
            'param_scheduler.0.end': 1,
            'param_scheduler.1.begin': 1,
            'model.decode_head.num_classes': 19,
            'model.auxiliary_head.num_classes': 19,
            'default_hooks.checkpoint.interval': 3,
        },
    )
    assert len(scores(runner)) == 1
    losses = runner.message_hub.get_scalar('train/loss').data[0]
    assert len(losses) == 3 and np.isfinite(losses).all()


@pytest.mark.parametrize('mode', ['slide', 'whole'])
def test_images_of_no_multiple_of_the_patch(mode):
    """Images are padded and cut; the ViT's own padding would stretch them."""
    options = dict(arch='deit-t', crop_size=96, classes='abc')
    cfg = read_run(CONFIGS / OWN, options)
    init_default_scope('mmseg')
    cfg.model.backbone.init_cfg = None
    cfg.model.test_cfg.mode = mode
    model = randomise(MODELS.build(cfg.model), 0)

    def predict(image):
        size = tuple(image.shape[1:])
        meta = dict(ori_shape=size, img_shape=size, pad_shape=size)
        sample = SegDataSample(metainfo=meta)
        batch = dict(inputs=[image], data_samples=[sample])
        batch = model.data_preprocessor(batch)
        with torch.no_grad():
            (found,) = model(**batch, mode='predict')
        return found.seg_logits.data

    torch.manual_seed(0)
    image = torch.randint(256, (3, 68, 90), dtype=torch.uint8)
    # The image is in BGR, and is turned to RGB before it is normalised.
    padded = model.data_preprocessor.mean.flip(0).repeat(1, 80, 96)
    padded[:, :68, :90] = image
    torch.testing.assert_close(predict(image), predict(padded)[:, :68, :90])


@pytest.mark.parametrize('name', [LINEAR, MASK])
def test_protocols_of_the_paper(name):
    """The trained parts, the optimiser and the features are the paper's."""
    cfg = Config.fromfile(CONFIGS / name)
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    if name == LINEAR:
        assert trained == {
            'decode_head.conv_seg.weight',
            'decode_head.conv_seg.bias',
        }
        assert model.decode_head.dropout is None
        model.decode_head.init_weights()
        weight = model.decode_head.conv_seg.weight
        assert weight.shape == (19, 768, 1, 1)
        assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        image = torch.randn(1, 3, 64, 64)
        with torch.no_grad():
            (awake,) = model.train().backbone(image)
            (asleep,) = model.eval().backbone(image)
        assert torch.equal(awake, asleep)
    else:
        assert len(trained) == len(list(model.parameters()))
        drop = model.backbone.layers[-1].attn.out_drop
        assert drop.drop_prob == pytest.approx(0.1)
        (layer,) = model.decode_head.layers
        assert layer.attn.attn.num_heads == 12
        assert layer.attn.attn.dropout == 0.1
    # Patch tokens after the norm, with a stride of 16.
    assert model.backbone.final_norm
    assert model.backbone.patch_resolution == (48, 48)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    (group,) = optimizer.param_groups
    wanted = dict(lr=0.01, momentum=0.9, nesterov=True, weight_decay=0)
    assert {key: group[key] for key in wanted} == wanted


def test_resumed_run_is_the_same(streets, tmp_path):
    """Order, augmentation and dropout are the same, bit for bit on a CPU.

    All weights change, including the backbone's. The schedule ends by itself
    with the second of two epochs, which have one step each.
    """
    options = {'default_hooks.checkpoint.max_keep_ckpts': 2}
    whole = run(MASK, streets, tmp_path / 'whole', 2, **options)
    rates = whole.message_hub.get_scalar('train/lr').data[0]
    assert rates == pytest.approx([0.01, 1e-5])
    resumed = run(
        MASK,
        streets,
        tmp_path / 'resumed',
        2,
        load_from=str(tmp_path / 'whole' / 'epoch_1.pth'),
        resume=True,
    )
    start = read_checkpoint(tmp_path / 'whole' / 'epoch_1.pth')['state_dict']
    expected, found = whole.model.state_dict(), resumed.model.state_dict()
    assert_same(found, expected)
    for name, _ in whole.model.named_parameters():
        assert not torch.equal(expected[name], start[name]), name


def test_starts_from_a_file_with_registers(streets, tmp_path):
    """The run has one step and a validation."""
    vit = token_vit('RegisterViT', embed_dim=64, depth=3, num_heads=1)
    torch.save(vit.state_dict(), tmp_path / 'vit.pth')
    arch = dict(num_heads=1, feedforward_channels=256)
    options = {f'model.backbone.arch.{k}': v for k, v in arch.items()}
    options |= from_file('RegisterViT', tmp_path / 'vit.pth')
    runner = run(MASK, streets, tmp_path, **options)
    assert len(scores(runner)) == 1
    assert list(tmp_path.glob('best_mIoU_*.pth'))
    assert_goes_on(runner, vit)
