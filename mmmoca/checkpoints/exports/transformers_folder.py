# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A folder that ``ViTModel.from_pretrained`` of transformers loads."""

from pathlib import Path

from torch import Tensor

from mmmoca.files import write_json

from ..huggingface_keys import convert_to_huggingface_name
from ..plain_vit import split_qkv
from ..preprocessing import Preprocessing
from .encoder import Encoder
from .format import INTERPOLATIONS, Format, side_or_sides, write_weights

__all__ = ['TRANSFORMERS']


def write(encoder: Encoder, folder: Path) -> None:
    """Write the two configs and ``model.safetensors``."""
    arch, patch = encoder.arch, side_or_sides(encoder.patch_size)
    config = dict(
        architectures=['ViTModel'],
        model_type='vit',
        hidden_size=arch['embed_dims'],
        num_hidden_layers=arch['num_layers'],
        num_attention_heads=arch['num_heads'],
        intermediate_size=arch['feedforward_channels'],
        hidden_act='gelu',
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.02,
        layer_norm_eps=encoder.vit.ln1.eps,
        image_size=side_or_sides(encoder.preprocessing.img_size),
        patch_size=patch,
        num_channels=encoder.channels,
        qkv_bias=encoder.qkv_bias,
        encoder_stride=patch,
        torch_dtype='float32',
    )
    write_json(folder / 'config.json', config)
    if has_processor(encoder.preprocessing):
        processor = _image_processor(encoder.preprocessing)
        write_json(folder / 'preprocessor_config.json', processor)
    write_weights(encoder, _renamed(encoder.state_dict), folder)


def has_processor(images: Preprocessing) -> bool:
    """Whether an image processor of transformers can prepare such images."""
    return images.channel_order == 'rgb'


def _renamed(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    state_dict = dict(state_dict)
    split_qkv(state_dict)
    return {
        convert_to_huggingface_name(name): value
        for name, value in state_dict.items()
    }


def _image_processor(images: Preprocessing) -> dict:
    """Config of the image processor that does what our pipelines do."""
    height, width = images.img_size
    size = dict(height=height, width=width)
    common = dict(
        do_resize=True,
        resample=INTERPOLATIONS.get(images.interpolation, 3),
        do_rescale=True,
        rescale_factor=1 / 255,
        do_normalize=True,
        image_mean=[value / 255 for value in images.mean],
        image_std=[value / 255 for value in images.std],
        do_convert_rgb=True,
    )
    if images.resize is None:
        kind = dict(image_processor_type='ViTImageProcessor', size=size)
    else:  # that of ViT knows no crop
        kind = dict(
            image_processor_type='BitImageProcessor',
            size=dict(shortest_edge=images.resize),
            do_center_crop=True,
            crop_size=size,
        )
    return kind | common


def usage(encoder: Encoder, name: str) -> str:
    """How to load it."""
    code = f"""\
from transformers import AutoImageProcessor, AutoModel

processor = AutoImageProcessor.from_pretrained({name!r})
model = AutoModel.from_pretrained({name!r}, add_pooling_layer=False).eval()
tokens = model(**processor(images, return_tensors='pt')).last_hidden_state"""
    if has_processor(encoder.preprocessing):
        return code
    return f"""\
from transformers import AutoModel

# Image processors of transformers take RGB images: see preprocessing.json.
model = AutoModel.from_pretrained({name!r}, add_pooling_layer=False).eval()
tokens = model(images).last_hidden_state"""


TRANSFORMERS = Format(write, usage, 'transformers', ('safetensors',))
