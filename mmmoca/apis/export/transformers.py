# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Exports encoders as models of transformers."""

from functools import partial
from pathlib import Path

import torch
from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor

from mmmoca.checkpoints import CheckpointError, Preprocessing
from mmmoca.checkpoints.names import DINOV2, DINOV3, HUGGINGFACE, VIT
from mmmoca.checkpoints.normal_form import split_qkv, token_parts

from ..encoder import Encoder
from .timm import mlp_ratio, resampling, round_periods, side_or_sides


def _tokens(
    vit: VisionTransformer, state: dict[str, Tensor], dinov2: bool
) -> tuple[str, dict, int]:
    """Return the name of a class, its settings, and a column of names.

    The class is one of transformers. The column of the table ``HUGGINGFACE``
    gives the names of its tensors. ``state`` is changed to fit this class.
    """
    registers, positions = token_parts(state)
    rotary, dims = positions == 'rope', vit.embed_dims
    if not (registers or rotary or dinov2):
        # This pooler returns [CLS], from transformers 4.50 on.
        state['pooler.dense.weight'] = torch.eye(dims)
        state['pooler.dense.bias'] = torch.zeros(dims)
        return 'ViTModel', dict(pooler_act='linear'), VIT
    if rotary and dinov2:
        raise CheckpointError(
            "transformers' classes for DINOv2 have no rotary positions: write "
            '--to transformers'
        )
    settings: dict = dict(layerscale_value=1.0)
    if registers or rotary:
        settings['num_register_tokens'] = registers
    if not rotary:
        kind = 'Dinov2WithRegistersModel' if registers else 'Dinov2Model'
        _check_square(kind, 'images', vit.img_size)
        return kind, settings | dict(mlp_ratio=mlp_ratio(vit)), DINOV2
    kind = 'DINOv3ViTModel'
    _check_square(kind, 'patches', vit.patch_embed.projection.kernel_size)
    round_periods(vit)
    del state['rotary_periods']
    side = max(vit.img_size)  # positions do not depend on it
    return kind, settings | dict(image_size=side, key_bias=True), DINOV3


def _check_square(kind: str, what: str, size: tuple[int, int]) -> None:
    if size[0] != size[1]:
        other = 'choose another --img-size, or ' * (what == 'images')
        raise CheckpointError(
            f'{kind} accepts only square {what}, not {size[0]} x {size[1]}: '
            f'{other}export to onnx, torch-export or safetensors'
        )


def write_transformers(
    encoder: Encoder, folder: Path, images: Tensor, dinov2: bool = False
) -> tuple[Tensor, ...]:
    """Write a folder that ``from_pretrained`` of transformers loads.

    Args:
        encoder (Encoder): The encoder.
        folder (Path): The folder to write to.
        images (Tensor): Normalised images, (B, C, H, W).
        dinov2 (bool): Write a plain ViT as ``Dinov2Model``, with a LayerScale
            of ones, instead of as ``ViTModel``.

    Returns:
        tuple[Tensor, ...]: What transformers computes from the images, see
        :meth:`.graph.Features.forward`.

    Raises:
        CheckpointError: If no class computes the same as the encoder.
        ImportError: If the installed transformers does not have the class.
    """
    import transformers

    vit, settings = encoder.backbone, encoder.preprocessing
    arch, projection = vit.arch_settings, vit.patch_embed.projection
    state = dict(vit.state_dict())
    name, options, column = _tokens(vit, state, dinov2)
    common = dict(
        hidden_size=arch['embed_dims'],
        num_hidden_layers=arch['num_layers'],
        num_attention_heads=arch['num_heads'],
        intermediate_size=arch['feedforward_channels'],
        layer_norm_eps=vit.ln1.eps,
        image_size=side_or_sides(settings.img_size),
        patch_size=side_or_sides(projection.kernel_size),
        num_channels=projection.in_channels,
        qkv_bias=vit.layers[0].attn.qkv.bias is not None,
    )
    kind = getattr(transformers, name, None)
    if kind is None:
        raise ImportError(
            f'this version of transformers has no {name}: install another one'
        )
    model = kind(kind.config_class(**common | options))
    split_qkv(state)
    named = {
        HUGGINGFACE.from_mmpretrain(name, column): value
        for name, value in state.items()
    }
    if column == DINOV3:
        named = {k.removeprefix('encoder.'): v for k, v in named.items()}
    # Parts that the encoder lacks, such as LayerScale, start as identities.
    model.load_state_dict(model.state_dict() | named)
    model.save_pretrained(folder, max_shard_size='1TB')
    # Image processors of transformers accept only RGB images.
    if settings.channel_order == 'rgb':
        name, numbers = _image_processor(settings)
        getattr(transformers, name)(**numbers).save_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder)
    tokens = model(images).last_hidden_state
    registers = getattr(model.config, 'num_register_tokens', 0)
    patches = tokens[:, 1 + registers :]
    return tokens[:, 0], patches.mean(dim=1), patches


write_dinov2 = partial(write_transformers, dinov2=True)


def _image_processor(settings: Preprocessing) -> tuple[str, dict]:
    """Return a processor's class and arguments that match our pipeline."""
    size = dict(zip(('height', 'width'), settings.img_size))
    numbers = dict(
        size=size,
        resample=resampling(settings.interpolation).value,
        rescale_factor=1 / 255,
        image_mean=[value / 255 for value in settings.mean],
        image_std=[value / 255 for value in settings.std],
        do_convert_rgb=True,
    )
    if settings.resize is None:
        return 'ViTImageProcessor', numbers
    numbers |= dict(size=dict(shortest_edge=settings.resize), crop_size=size)
    return 'BitImageProcessor', numbers  # ViTImageProcessor does not crop
