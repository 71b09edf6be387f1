# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A folder that ``timm.create_model('local-dir:FOLDER')`` loads."""

import math
from pathlib import Path

from mmmoca.files import write_json

from ..timm_keys import convert_to_timm_name
from .encoder import Encoder
from .format import INTERPOLATIONS, Format, side_or_sides, write_weights

__all__ = ['TIMM', 'architecture']

# The ViTs that timm has a name for: channels, layers and heads, and patches.
_NAMED = {
    (192, 12, 3): ('tiny', (16,)),
    (384, 12, 6): ('small', (8, 16, 32)),
    (768, 12, 12): ('base', (8, 16, 32)),
    (1024, 24, 16): ('large', (14, 16, 32)),
    (1280, 32, 16): ('huge', (14,)),
}


def write(encoder: Encoder, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``."""
    images = encoder.preprocessing
    name, arguments = architecture(encoder)
    pool = 'avg' if _feature(encoder) == 'avg' else 'token'
    # [AVG] is taken after the final norm, and no other norm follows.
    arguments |= dict(global_pool=pool, fc_norm=False)
    square = images.resize is not None
    # timm divides images of 8 bits by 255.
    scale = 1 if images.channel_order == 'bands' else 255
    config = dict(
        architecture=name,
        num_classes=0,
        num_features=encoder.arch['embed_dims'],
        global_pool=pool,
        model_args=arguments,
        pretrained_cfg=dict(
            input_size=[encoder.channels, *images.img_size],
            fixed_input_size=True,
            num_classes=0,
            mean=[value / scale for value in images.mean],
            std=[value / scale for value in images.std],
            interpolation=(
                images.interpolation
                if images.interpolation in INTERPOLATIONS
                else 'bicubic'
            ),
            crop_pct=images.img_size[0] / images.resize if square else 1.0,
            crop_mode='center' if square else 'squash',
        ),
    )
    write_json(folder / 'config.json', config)
    write_weights(
        encoder,
        {convert_to_timm_name(n): v for n, v in encoder.state_dict.items()},
        folder,
    )


def _feature(encoder: Encoder) -> str:
    """What its forward pass gives: [CLS] where nothing else is known."""
    return encoder.record['feature'] or 'cls'


def architecture(encoder: Encoder) -> tuple[str, dict]:
    """A model of timm, and what of it has to be another.

    Args:
        encoder (Encoder): What is exported.

    Returns:
        Tuple[str, dict]: Name and arguments for ``timm.create_model``.
    """
    arch, patch = encoder.arch, encoder.patch_size
    dims, hidden = arch['embed_dims'], arch['feedforward_channels']
    sizes = dims, arch['num_layers'], arch['num_heads']
    size, patches = _NAMED.get(sizes, ('', ()))
    arguments = dict(
        img_size=list(encoder.vit.img_size),
        in_chans=encoder.channels,
        qkv_bias=encoder.qkv_bias,
    )
    if patch[0] == patch[1] and patch[0] in patches and hidden == 4 * dims:
        return f'vit_{size}_patch{patch[0]}_224', arguments
    ratio = hidden / dims
    if int(dims * ratio) != hidden:  # timm rounds down
        ratio = math.nextafter(ratio, math.inf)
    return 'vit_base_patch16_224', arguments | dict(
        patch_size=side_or_sides(patch),
        embed_dim=dims,
        depth=arch['num_layers'],
        num_heads=arch['num_heads'],
        mlp_ratio=ratio,
    )


def usage(encoder: Encoder, name: str) -> str:
    """How to load it."""
    return f"""\
import timm

model = timm.create_model({f'local-dir:{name}'!r}, pretrained=True).eval()
{_feature(encoder)} = model(images)  # (B, {encoder.arch['embed_dims']})
tokens = model.forward_features(images)  # [CLS], then the patches"""


TIMM = Format(write, usage, 'timm', ('safetensors',))
