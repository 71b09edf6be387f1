# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a user does with the wheel alone, far from any checkout.

``test_packaging.py`` runs a copy of this file in a new environment.
"""

import sys
from pathlib import Path

import mmengine.hub
import mmpretrain
import numpy as np
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmpretrain import list_models
from mmpretrain.registry import MODELS, TRANSFORMS
from PIL import Image

import mmmoca.hub
from mmmoca.__main__ import main
from mmmoca.shipped import shipped

RUN = 'run/epoch_1.pth'
OWN = [
    'demo/moca_vit-tiny_own-images.py',
    '--work-dir',
    'run',
    '--cfg-options',
    'data_root=images',
    'epochs=1',
    'batch_size=4',
    'train_dataloader.num_workers=0',
]
# The arguments of each command, and a file that it must leave.
COMMANDS = (
    (['check', *OWN], 'images'),
    (['pretrain', *OWN], RUN),
    (['embed', RUN, 'images', 'out.npy', '--workers', '0'], 'out.npy'),
)


def inherit():
    """Inherit one of our configs by name, and find models by their names."""
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
    assert 'moca_vit-l16_200e' in list_models('moca*')


def draw_images():
    """Draw four images of noise."""
    Path('images').mkdir()
    generator = np.random.default_rng(0)
    for index in range(4):
        noise = generator.integers(0, 256, (60, 70, 3), np.uint8)
        Image.fromarray(noise).save(f'images/{index}.png')


def use_command():
    """Call the command in this process; a new one imports for ten seconds."""
    for arguments, written in COMMANDS:
        assert arguments[0] == 'check' or not Path(written).exists()
        sys.argv = ['mmmoca', *arguments]
        print(f'command: {arguments[0]}', flush=True)
        main()
        assert Path(written).exists(), written
    encoder = mmmoca.load(RUN)
    assert encoder.metainfo['which'] == 'teacher'
    found = encoder.embed('images', num_workers=0).avg.numpy()
    np.testing.assert_allclose(np.load('out.npy'), found, atol=1e-5)


if __name__ == '__main__':
    for module in (mmmoca, mmpretrain):
        assert Path(sys.prefix) in Path(module.__file__).parents
    assert Path(mmmoca.__file__).parent in shipped('configs').parents
    inherit()
    draw_images()
    use_command()
