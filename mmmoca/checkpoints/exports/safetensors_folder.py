# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The names of mmpretrain in a safetensors file."""

from pathlib import Path

from .encoder import Encoder
from .format import Format, write_weights

__all__ = ['SAFETENSORS']


def write(encoder: Encoder, folder: Path) -> None:
    """Write ``model.safetensors``."""
    state = encoder.state_dict
    write_weights(
        encoder, {f'backbone.{k}': v for k, v in state.items()}, folder
    )


def usage(encoder: Encoder, name: str) -> str:
    """How to load it."""
    return f"""\
from mmmoca.checkpoints import build_vit, read_backbone

folder = {name!r}
model = build_vit(read_backbone(f'{{folder}}/model.safetensors'))
tokens = model(images)[-1]  # [CLS], then the patches

# In a config of mmpretrain, mmsegmentation or mmdetection, of its backbone
custom_imports = dict(imports='mmmoca.checkpoints')
init_cfg = dict(
    type='Pretrained',
    checkpoint=f'mmmoca-teacher://{{folder}}/model.safetensors',
    prefix='backbone.',
)"""


SAFETENSORS = Format(write, usage, 'mmmoca', ('safetensors',), in_rgb=False)
