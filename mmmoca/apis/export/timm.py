# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Exports encoders as models of timm."""

import math
from pathlib import Path
from typing import Any

import torch
from mmpretrain.models.backbones import VisionTransformer
from PIL.Image import Resampling
from torch import Tensor

from mmmoca.checkpoints.names import TIMM
from mmmoca.checkpoints.normal_form import token_parts
from mmmoca.models.rotary import rotary_periods

from ..encoder import Encoder


def resampling(name: str) -> Resampling:
    """Return PIL's interpolation of this name, or bicubic if PIL has none."""
    return Resampling.__members__.get(name.upper(), Resampling.BICUBIC)


def side_or_sides(size: tuple[int, int]) -> int | list[int]:
    """Return a size as a list, or as one int if it is square.

    All libraries that read the exported config accept one int.
    """
    return size[0] if size[0] == size[1] else list(size)


def mlp_ratio(vit: VisionTransformer) -> float:
    """Return the ratio of MLP width to token width.

    Libraries multiply it by the token width and round down. This ratio
    makes the result the exact MLP width.
    """
    dims = vit.embed_dims
    hidden = vit.arch_settings['feedforward_channels']
    if hidden % dims == 0:
        return hidden // dims  # transformers 5 accepts only integers
    ratio = hidden / dims
    return ratio if int(dims * ratio) == hidden else math.nextafter(ratio, 9e9)


def round_periods(vit: VisionTransformer) -> None:
    """Replace periods rounded to bfloat16 with the exact ones, in place.

    DINOv3's authors save the periods of rotary positions in bfloat16. Other
    libraries compute the exact ones. Periods that differ from the exact ones
    by more than rounding are not changed.
    """
    usual = rotary_periods(4 * len(vit.rotary_periods))
    if torch.allclose(vit.rotary_periods, usual, rtol=1e-2):
        vit.rotary_periods.copy_(usual)


def _tokens(
    vit: VisionTransformer, state: dict[str, Tensor]
) -> tuple[str, dict]:
    """Return timm's architecture and its arguments. Changes ``state``."""
    registers, positions = token_parts(state)
    if positions != 'rope':
        options = {}
        # timm has positions for both [CLS] and registers, or for neither.
        if registers:
            first = state['pos_embed'][:, :1]
            state['pos_embed'] = state['pos_embed'][:, 1:]
            state['cls_token'] = state['cls_token'] + first
            options = dict(reg_tokens=registers, no_embed_class=True)
        # Arguments can turn this architecture into any plain ViT.
        # fc_norm would normalise [AVG] again, after the final norm.
        return 'vit_base_patch16_224', dict(options, fc_norm=False)
    round_periods(vit)
    for name in [n for n in state if n.endswith('.attn.qkv.bias')]:
        # In timm's DINOv3, keys have no bias.
        query, _, value = state.pop(name).chunk(3)
        state[name.replace('qkv', 'q')] = query
        state[name.replace('qkv', 'v')] = value
    del state['rotary_periods']
    return 'vit_base_patch16_dinov3', dict(
        num_reg_tokens=registers,
        use_fc_norm=False,
        init_values=1.0,  # factors of LayerScale
    )


def write_timm(
    encoder: Encoder, folder: Path, images: Tensor
) -> tuple[Tensor, ...]:
    """Write a folder that ``timm.create_model('local-dir:FOLDER')`` loads.

    The forward pass of timm's model returns [AVG] if this is known to be the
    encoder's feature for k-NN. Otherwise it returns [CLS].

    Args:
        encoder (Encoder): The encoder.
        folder (Path): The folder to write to.
        images (Tensor): Normalised images, (B, C, H, W).

    Returns:
        tuple[Tensor, ...]: What timm computes from the images, see
        :meth:`.graph.Features.forward`.
    """
    import timm

    vit, settings = encoder.backbone, encoder.preprocessing
    arch, projection = vit.arch_settings, vit.patch_embed.projection
    known = encoder.preset.method is not None
    cropped = settings.resize is not None
    # timm divides 8-bit images by 255.
    scale = 1 if settings.channel_order == 'bands' else 255
    state = dict(vit.state_dict())
    architecture, options = _tokens(vit, state)
    options |= dict(
        img_size=list(vit.img_size),
        patch_size=side_or_sides(projection.kernel_size),
        in_chans=projection.in_channels,
        embed_dim=arch['embed_dims'],
        depth=arch['num_layers'],
        num_heads=arch['num_heads'],
        mlp_ratio=mlp_ratio(vit),
        qkv_bias=vit.layers[0].attn.qkv.bias is not None,
        global_pool='avg' if known and encoder.feature == 'avg' else 'token',
    )
    pretrained = dict(
        architecture=architecture,
        input_size=[projection.in_channels, *settings.img_size],
        fixed_input_size=True,
        num_classes=0,
        # timm replaces these parts if classes or channels change.
        classifier='head',
        first_conv='patch_embed.proj',
        mean=[value / scale for value in settings.mean],
        std=[value / scale for value in settings.std],
        interpolation=resampling(settings.interpolation).name.lower(),
        crop_pct=settings.img_size[0] / settings.resize if cropped else 1.0,
        crop_mode='center' if cropped else 'squash',
    )
    model: Any = timm.create_model(
        architecture, pretrained_cfg=pretrained, num_classes=0, **options
    )
    named = {TIMM.from_mmpretrain(name): v for name, v in state.items()}
    model.load_state_dict(model.state_dict() | named)
    timm.models.save_for_hf(
        model, str(folder), model_args=options, safe_serialization=True
    )
    model = timm.create_model(f'local-dir:{folder}', pretrained=True).eval()
    tokens, pooled = model.forward_features(images), model(images)
    patches = tokens[:, model.num_prefix_tokens :]
    if model.global_pool == 'avg':
        return tokens[:, 0], pooled, patches
    return pooled, patches.mean(dim=1), patches
