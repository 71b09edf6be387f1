# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a user does with the wheel alone, far from any checkout.

``test_packaging.py`` runs a copy of this file in an environment of its own.
"""

import sys
from pathlib import Path

import mmengine.hub
import mmpretrain
import numpy as np
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmpretrain import (
    FeatureExtractor,
    get_model,
    list_models,
)
from mmpretrain.registry import MODELS, TRANSFORMS
from PIL import Image

import mmmoca.hub
from mmmoca.__main__ import main
from mmmoca.checkpoints import run_record
from mmmoca.files import shipped

TINY = 'moca_vit-tiny_textures'
OWN = [
    *('demo/moca_vit-tiny_own-images.py', '--work-dir', 'run'),
    *('--cfg-options', 'data_root=images', 'epochs=1', 'batch_size=4'),
    'train_dataloader.num_workers=0',
]
# Arguments of the command, and a file that is there afterwards.
COMMANDS = (
    (['embed', 'run.pth', 'images', 'out.npy'], 'out.npy'),
    # The format that takes no extra.
    (['export', 'run.pth', 'pt2', '--to', 'torch-export'], 'pt2/README.md'),
    (['check', *OWN], 'images'),
    (['pretrain', *OWN], 'run/epoch_1.pth'),
)


def inherit():
    """A config of ours by its name."""
    Path('child.py').write_text(
        "_base_ = 'mmmoca::moca/moca_vit-b16_200e.py'\n"
        "model = dict(backbone=dict(arch='deit-t'))\n"
    )
    cfg = Config.fromfile('child.py')
    init_default_scope(cfg.default_scope)
    assert MODELS.build(cfg.model).backbone.embed_dims == 192
    for transform in [*cfg.train_pipeline, *cfg.test_pipeline]:
        TRANSFORMS.build(transform)
    cfg = mmengine.hub.get_config('mmmoca::moca/moca_vit-b16_200e.py', True)
    assert cfg.model_path.startswith('https://github.com/valeoai/MOCA/')


def draw_images():
    """Four images of noise."""
    Path('images').mkdir()
    generator = np.random.default_rng(0)
    for index in range(4):
        noise = generator.integers(0, 256, (60, 70, 3), np.uint8)
        Image.fromarray(noise).save(f'images/{index}.png')


def use_models():
    """mmpretrain's models of ours and `mmmoca.load` give the same features."""
    assert 'moca_vit-l16_200e' in list_models('moca*')
    model = get_model(TINY)
    MMLogger.get_current_instance().setLevel('WARNING')
    model.init_weights()
    meta = dict(mmmoca=run_record(model._config.to_dict(), model))
    torch.save(dict(state_dict=model.state_dict(), meta=meta), 'run.pth')
    features = mmmoca.load('run.pth').embed('images', num_workers=0)
    extract = FeatureExtractor(TINY, pretrained='run.pth')
    for path, feature in zip(features.paths, features.avg):
        torch.testing.assert_close(extract(path)[0], feature)
    return features.avg.numpy()


def pretrain():
    """A run, by a config of the wheel."""
    checkpoint = mmmoca.pretrain(
        *('images', 'work_dir'),
        **dict(epochs=1, batch_size=4, config='moca_vit-tiny_own-images'),
        **{'train_dataloader.num_workers': 0},
    )
    assert mmmoca.load(checkpoint).about['which'] == 'teacher'


def use_command(features):
    """The command, here: a process imports for ten seconds."""
    for arguments, written in COMMANDS:
        assert not Path('run').exists()
        sys.argv = ['mmmoca', *arguments]
        main()
        assert Path(written).exists(), written
    np.testing.assert_allclose(np.load('out.npy'), features, atol=1e-5)


if __name__ == '__main__':
    for module in (mmmoca, mmpretrain):
        assert Path(sys.prefix) in Path(module.__file__).parents
    assert Path(mmmoca.__file__).parent in shipped('configs').parents
    inherit()
    draw_images()
    use_command(use_models())
    pretrain()
