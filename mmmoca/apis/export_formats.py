# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writers of an encoder in the formats of other libraries.

Each writes into a folder, and returns the Python code that loads it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from mmpretrain.models.backbones import VisionTransformer
from PIL.Image import Resampling
from torch import Tensor, nn

from mmmoca.checkpoints import (
    Preprocessing,
    convert_to_timm_name,
    write_checkpoint,
)
from mmmoca.checkpoints.keys import convert_to_huggingface_name
from mmmoca.checkpoints.weights import split_qkv
from mmmoca.files import write_json

__all__ = [
    'Source',
    'write_onnx',
    'write_safetensors',
    'write_timm',
    'write_torch_export',
    'write_transformers',
]

_OPSET = 18
# Protocol buffers end at 2 GB.
_ONE_FILE = 1_900_000_000
_OUTPUTS = ('cls', 'avg', 'patches')


class Source(NamedTuple):
    """What is exported.

    Attributes:
        vit (VisionTransformer): Gives all tokens after its final norm; in
            float32 and evaluation mode, on the CPU.
        images (Preprocessing): How images are prepared for it.
        record (dict): Where it is from, see :func:`file_record`.
    """

    vit: VisionTransformer
    images: Preprocessing
    record: dict

    @property
    def arch(self) -> dict[str, int]:
        """Dict[str, int]: Sizes, as mmpretrain's ``arch`` calls them."""
        return self.vit.arch_settings

    @property
    def patch_size(self) -> tuple[int, int]:
        """Tuple[int, int]: Height and width in pixels."""
        return tuple(self.vit.patch_embed.projection.kernel_size)

    @property
    def channels(self) -> int:
        """int: Of the images."""
        return self.vit.patch_embed.projection.in_channels

    @property
    def interpolation(self) -> Resampling:
        """Resampling: PIL's, bicubic in the place of OpenCV's others."""
        known = Resampling.__members__
        name = self.images.interpolation.upper()
        return known.get(name, Resampling.BICUBIC)


def _write_weights(
    source: Source, state_dict: Mapping[str, Tensor], folder: Path
) -> None:
    """Write ``model.safetensors``, which this package reads, too."""
    checkpoint = dict(state_dict=state_dict, meta=dict(mmmoca=source.record))
    write_checkpoint(checkpoint, folder / 'model.safetensors')


def _side_or_sides(size: tuple[int, int]) -> int | list[int]:
    """(224, 224) as 224, which all readers know, and others as a list."""
    return size[0] if size[0] == size[1] else list(size)


def write_safetensors(source: Source, folder: Path) -> str:
    """Write ``model.safetensors`` with mmpretrain's names."""
    state = source.vit.state_dict()
    _write_weights(source, {f'backbone.{k}': state[k] for k in state}, folder)
    return f"""\
from mmmoca.checkpoints import build_vit, read_backbone

folder = {folder.name!r}
model = build_vit(read_backbone(f'{{folder}}/model.safetensors'))
tokens = model(images)[-1]  # [CLS], then the patches

# In a config of mmpretrain, mmsegmentation or mmdetection, of its backbone
custom_imports = dict(imports='mmmoca.checkpoints')
init_cfg = dict(
    type='Pretrained',
    checkpoint=f'mmmoca-teacher://{{folder}}/model.safetensors',
    prefix='backbone.',
)"""


def write_timm(source: Source, folder: Path) -> str:
    """Write what ``timm.create_model('local-dir:FOLDER')`` loads.

    Its forward pass gives [AVG], or [CLS] if nothing says what the encoder
    is judged by.
    """
    images, arch = source.images, source.arch
    dims, hidden = arch['embed_dims'], arch['feedforward_channels']
    ratio = hidden / dims
    if int(dims * ratio) != hidden:  # timm rounds down
        ratio = math.nextafter(ratio, math.inf)
    feature = source.record['feature'] or 'cls'
    pool = 'avg' if feature == 'avg' else 'token'
    square = images.resize is not None
    # timm divides images of 8 bits by 255.
    scale = 1 if images.channel_order == 'bands' else 255
    config = dict(
        # Any ViT is one of these with other arguments.
        architecture='vit_base_patch16_224',
        num_classes=0,
        num_features=dims,
        global_pool=pool,
        model_args=dict(
            img_size=list(source.vit.img_size),
            patch_size=_side_or_sides(source.patch_size),
            in_chans=source.channels,
            embed_dim=dims,
            depth=arch['num_layers'],
            num_heads=arch['num_heads'],
            mlp_ratio=ratio,
            qkv_bias=source.vit.layers[0].attn.qkv.bias is not None,
            global_pool=pool,
            fc_norm=False,  # [AVG] is taken after the final norm
        ),
        pretrained_cfg=dict(
            input_size=[source.channels, *images.img_size],
            fixed_input_size=True,
            num_classes=0,
            mean=[value / scale for value in images.mean],
            std=[value / scale for value in images.std],
            interpolation=source.interpolation.name.lower(),
            crop_pct=images.img_size[0] / images.resize if square else 1.0,
            crop_mode='center' if square else 'squash',
        ),
    )
    write_json(folder / 'config.json', config)
    state = source.vit.state_dict()
    state = {convert_to_timm_name(name): v for name, v in state.items()}
    _write_weights(source, state, folder)
    return f"""\
import timm

name = {f'local-dir:{folder.name}'!r}
model = timm.create_model(name, pretrained=True).eval()
{feature} = model(images)  # (B, {dims})
tokens = model.forward_features(images)  # [CLS], then the patches"""


def write_transformers(source: Source, folder: Path) -> str:
    """Write what ``ViTModel.from_pretrained`` of transformers loads."""
    arch, patch = source.arch, _side_or_sides(source.patch_size)
    config = dict(
        architectures=['ViTModel'],
        model_type='vit',
        hidden_size=arch['embed_dims'],
        num_hidden_layers=arch['num_layers'],
        num_attention_heads=arch['num_heads'],
        intermediate_size=arch['feedforward_channels'],
        layer_norm_eps=source.vit.ln1.eps,
        image_size=_side_or_sides(source.images.img_size),
        patch_size=patch,
        num_channels=source.channels,
        qkv_bias=source.vit.layers[0].attn.qkv.bias is not None,
        encoder_stride=patch,
    )
    write_json(folder / 'config.json', config)
    state = dict(source.vit.state_dict())
    split_qkv(state)
    state = {convert_to_huggingface_name(name): v for name, v in state.items()}
    _write_weights(source, state, folder)
    name = folder.name
    if source.images.channel_order != 'rgb':
        return f"""\
from transformers import AutoModel

# Image processors of transformers take RGB images: see preprocessing.json.
model = AutoModel.from_pretrained({name!r}, add_pooling_layer=False).eval()
tokens = model(images).last_hidden_state"""
    processor = _image_processor(source)
    write_json(folder / 'preprocessor_config.json', processor)
    return f"""\
from transformers import AutoImageProcessor, AutoModel

processor = AutoImageProcessor.from_pretrained({name!r})
model = AutoModel.from_pretrained({name!r}, add_pooling_layer=False).eval()
tokens = model(**processor(images, return_tensors='pt')).last_hidden_state"""


def _image_processor(source: Source) -> dict:
    """Config of the image processor that does what our pipelines do."""
    images = source.images
    size = dict(zip(('height', 'width'), images.img_size))
    if images.resize is None:
        kind = dict(image_processor_type='ViTImageProcessor', size=size)
    else:  # that of ViT does not crop
        kind = dict(
            image_processor_type='BitImageProcessor',
            size=dict(shortest_edge=images.resize),
            do_center_crop=True,
            crop_size=size,
        )
    return kind | dict(
        do_resize=True,
        resample=source.interpolation.value,
        do_rescale=True,
        rescale_factor=1 / 255,
        do_normalize=True,
        image_mean=[value / 255 for value in images.mean],
        image_std=[value / 255 for value in images.std],
        do_convert_rgb=True,
    )


class _Features(nn.Module):
    """Normalised images (B, C, H, W) in, features after the final norm out.

    [CLS] (B, D), [AVG], the mean patch token (B, D), and the L patch tokens
    row by row (B, L, D).
    """

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.vit = vit
        self.eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tokens = self.vit(images)[0]
        patches = tokens[:, 1:]
        return tokens[:, 0], patches.mean(dim=1), patches


def _example(source: Source) -> tuple[tuple[Tensor], dict]:
    """Arguments to trace with, and which of their sides may change."""
    images = torch.zeros(2, source.channels, *source.vit.img_size)
    return (images,), dict(images={0: torch.export.Dim('batch')})


def write_onnx(source: Source, folder: Path) -> str:
    """Write ``model.onnx``; weights above 2 GB lie beside it."""
    arguments, dynamic = _example(source)
    size = sum(p.numel() * p.element_size() for p in source.vit.parameters())
    torch.onnx.export(
        _Features(source.vit),
        arguments,
        folder / 'model.onnx',
        input_names=['images'],
        output_names=_OUTPUTS,
        opset_version=_OPSET,
        dynamo=True,
        external_data=size > _ONE_FILE,
        dynamic_shapes=dynamic,
        verbose=False,
    )
    return f"""\
import onnxruntime

folder = {folder.name!r}
session = onnxruntime.InferenceSession(f'{{folder}}/model.onnx')
cls, avg, patches = session.run(None, dict(images=images))  # float32"""


def write_torch_export(source: Source, folder: Path) -> str:
    """Write ``model.pt2``, for ``torch.export.load``."""
    arguments, dynamic = _example(source)
    with torch.no_grad():
        program = torch.export.export(
            _Features(source.vit), arguments, dynamic_shapes=dynamic
        )
    torch.export.save(program, folder / 'model.pt2')
    return f"""\
import torch

folder = {folder.name!r}
model = torch.export.load(f'{{folder}}/model.pt2').module()
cls, avg, patches = model(images)"""
