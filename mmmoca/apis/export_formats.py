# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writers of an encoder in the formats of other libraries."""

import io
import math
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from mmpretrain.models.backbones import VisionTransformer
from PIL.Image import Resampling
from torch import Tensor, nn

from mmmoca.checkpoints import (
    CheckpointError,
    Preprocessing,
    write_checkpoint,
)
from mmmoca.checkpoints.names import (
    DINOV2,
    DINOV3,
    HUGGINGFACE,
    TIMM,
    VIT,
)
from mmmoca.checkpoints.normal_form import split_qkv, token_parts
from mmmoca.files import write_json
from mmmoca.models.rotary import rotary_periods

from .encoder import Encoder


def _write_weights(
    state_dict: Mapping[str, Tensor], record: dict, folder: Path
) -> None:
    """Write ``model.safetensors``, which this package reads, too."""
    checkpoint = dict(state_dict=state_dict, meta=dict(mmmoca=record))
    write_checkpoint(checkpoint, folder / 'model.safetensors')


def _resampling(name: str) -> Resampling:
    """An interpolation of PIL, bicubic in the place of OpenCV's others."""
    return Resampling.__members__.get(name.upper(), Resampling.BICUBIC)


def _side_or_sides(size: tuple[int, int]) -> int | list[int]:
    """(224, 224) as 224, which all readers know, and others as a list."""
    return size[0] if size[0] == size[1] else list(size)


def write_safetensors(encoder: Encoder, record: dict, folder: Path) -> None:
    """Write ``model.safetensors`` with mmpretrain's names."""
    state = encoder.backbone.state_dict()
    state = {f'backbone.{name}': value for name, value in state.items()}
    _write_weights(state, record, folder)


def _check_rotary(vit: VisionTransformer, library: str) -> None:
    """Refuse angles that the class of a library does not compute."""
    usual = rotary_periods(4 * len(vit.rotary_periods))
    if not torch.allclose(vit.rotary_periods, usual, rtol=1e-2):
        raise CheckpointError(
            f'its rotary positions have other periods than {library} has: '
            'export to onnx, torch-export or safetensors'
        )


def _timm_tokens(
    vit: VisionTransformer, state: dict[str, Tensor]
) -> tuple[str, dict]:
    """Timm's architecture and its arguments; the state is changed."""
    registers, positions = token_parts(vit.state_dict())
    if positions != 'rope':
        options = {}
        if registers:  # which timm gives positions, too, if [CLS] has one
            first = state['pos_embed'][:, :1]
            state['pos_embed'] = state['pos_embed'][:, 1:]
            state['cls_token'] = state['cls_token'] + first
            options = dict(reg_tokens=registers, no_embed_class=True)
        # Any ViT is one of these with other arguments.
        return 'vit_base_patch16_224', dict(options, fc_norm=False)
    _check_rotary(vit, 'timm')
    for name in [n for n in state if n.endswith('.attn.qkv.bias')]:
        query, key, value = state.pop(name).chunk(3)
        if key.any():
            raise CheckpointError(
                'its keys have biases, which count beside rotary positions, '
                "and timm's class has none: export to transformers, onnx, "
                'torch-export or safetensors'
            )
        state[name.replace('qkv', 'q')] = query
        state[name.replace('qkv', 'v')] = value
    for index in range(vit.num_layers):  # by which it is known as DINOv3's
        for part in ('gamma_1', 'gamma_2'):
            state[f'blocks.{index}.{part}'] = torch.ones(vit.embed_dims)
    del state['pos_embed'], state['rotary_periods']
    return 'vit_base_patch16_dinov3', dict(
        num_reg_tokens=registers, use_fc_norm=False
    )


def write_timm(encoder: Encoder, record: dict, folder: Path) -> None:
    """Write what ``timm.create_model('local-dir:FOLDER')`` loads.

    Its forward pass gives [AVG], or [CLS] if nothing says what the encoder
    is judged by.
    """
    vit, settings = encoder.backbone, encoder.preprocessing
    arch, projection = vit.arch_settings, vit.patch_embed.projection
    dims, hidden = arch['embed_dims'], arch['feedforward_channels']
    ratio = hidden / dims
    if int(dims * ratio) != hidden:  # timm rounds down
        ratio = math.nextafter(ratio, math.inf)
    known = encoder.preset.method is not None
    pool = 'avg' if known and encoder.feature == 'avg' else 'token'
    cropped = settings.resize is not None
    share = settings.img_size[0] / settings.resize if cropped else 1.0
    # timm divides images of 8 bits by 255.
    scale = 1 if settings.channel_order == 'bands' else 255
    state = dict(vit.state_dict())
    architecture, options = _timm_tokens(vit, state)
    config = dict(
        architecture=architecture,
        model_args=dict(
            img_size=list(vit.img_size),
            patch_size=_side_or_sides(projection.kernel_size),
            in_chans=projection.in_channels,
            embed_dim=dims,
            depth=arch['num_layers'],
            num_heads=arch['num_heads'],
            mlp_ratio=ratio,
            qkv_bias=vit.layers[0].attn.qkv.bias is not None,
            global_pool=pool,
            **options,  # without a second norm: [AVG] is taken after one
        ),
        pretrained_cfg=dict(
            input_size=[projection.in_channels, *settings.img_size],
            fixed_input_size=True,
            num_classes=0,
            # What timm replaces for other classes, or channels.
            classifier='head',
            first_conv='patch_embed.proj',
            mean=[value / scale for value in settings.mean],
            std=[value / scale for value in settings.std],
            interpolation=_resampling(settings.interpolation).name.lower(),
            crop_pct=share,
            crop_mode='center' if cropped else 'squash',
        ),
    )
    write_json(folder / 'config.json', config)
    state = {TIMM.from_mmpretrain(name): v for name, v in state.items()}
    _write_weights(state, record, folder)


def transformers_class(vit: VisionTransformer) -> str:
    """The class of transformers that computes what a ViT does."""
    registers, positions = token_parts(vit.state_dict())
    if positions == 'rope':
        return 'DINOv3ViTModel'
    return 'Dinov2WithRegistersModel' if registers else 'ViTModel'


def _transformers_tokens(
    vit: VisionTransformer, state: dict[str, Tensor]
) -> tuple[dict, int]:
    """Settings of such a class, and its column; the state is changed."""
    registers, positions = token_parts(vit.state_dict())
    rotary = positions == 'rope'
    if not registers and not rotary:
        return dict(model_type='vit'), VIT
    height, width = vit.img_size
    if height != width and not rotary:
        raise CheckpointError(
            f'{height} x {width}: Dinov2WithRegistersModel takes squares '
            'alone: give one by --img-size'
        )
    dims = vit.embed_dims
    for index in range(vit.num_layers):
        for part in ('attn.gamma1', 'ffn.gamma2'):
            state[f'layers.{index}.{part}.weight'] = torch.ones(dims)
    state['mask_token'] = (
        torch.zeros(1, 1, dims) if rotary else (torch.zeros(1, dims))
    )
    settings: dict = dict(num_register_tokens=registers, layerscale_value=1.0)
    if not rotary:
        ratio = vit.arch_settings['feedforward_channels'] / dims
        settings |= dict(model_type='dinov2_with_registers', mlp_ratio=ratio)
        return settings, DINOV2
    _check_rotary(vit, 'transformers')
    height, width = vit.patch_embed.projection.kernel_size
    if height != width:
        raise CheckpointError(
            f'patches of {height} x {width}: DINOv3ViTModel takes squares '
            'alone: export to onnx, torch-export or safetensors'
        )
    del state['pos_embed'], state['rotary_periods']
    state.setdefault('register_tokens', torch.zeros(1, 0, dims))
    side = max(vit.img_size)  # which its positions do not depend on
    settings |= dict(model_type='dinov3_vit', image_size=side, key_bias=True)
    return settings, DINOV3


def write_transformers(encoder: Encoder, record: dict, folder: Path) -> None:
    """Write what a class of transformers loads by ``from_pretrained``."""
    vit, settings = encoder.backbone, encoder.preprocessing
    arch, projection = vit.arch_settings, vit.patch_embed.projection
    state = dict(vit.state_dict())
    options, column = _transformers_tokens(vit, state)
    config = (
        dict(
            architectures=[transformers_class(vit)],
            hidden_size=arch['embed_dims'],
            num_hidden_layers=arch['num_layers'],
            num_attention_heads=arch['num_heads'],
            intermediate_size=arch['feedforward_channels'],
            layer_norm_eps=vit.ln1.eps,
            image_size=_side_or_sides(settings.img_size),
            patch_size=_side_or_sides(projection.kernel_size),
            num_channels=projection.in_channels,
            qkv_bias=vit.layers[0].attn.qkv.bias is not None,
        )
        | options
    )
    write_json(folder / 'config.json', config)
    split_qkv(state)
    named = {
        HUGGINGFACE.from_mmpretrain(name, column): value
        for name, value in state.items()
    }
    if column == DINOV3:
        named = {k.removeprefix('encoder.'): v for k, v in named.items()}
    _write_weights(named, record, folder)
    # Image processors of transformers take RGB images alone.
    if settings.channel_order == 'rgb':
        processor = _image_processor(settings)
        write_json(folder / 'preprocessor_config.json', processor)


def _image_processor(settings: Preprocessing) -> dict:
    """Config of the image processor that does what our pipelines do."""
    size = dict(zip(('height', 'width'), settings.img_size))
    if settings.resize is None:
        kind: dict = dict(image_processor_type='ViTImageProcessor', size=size)
    else:  # that of ViT does not crop
        kind = dict(
            image_processor_type='BitImageProcessor',
            size=dict(shortest_edge=settings.resize),
            do_center_crop=True,
            crop_size=size,
        )
    return kind | dict(
        do_resize=True,
        resample=_resampling(settings.interpolation).value,
        do_rescale=True,
        rescale_factor=1 / 255,
        do_normalize=True,
        image_mean=[value / 255 for value in settings.mean],
        image_std=[value / 255 for value in settings.std],
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


def _exported(encoder: Encoder) -> torch.export.ExportedProgram:
    """A graph of the encoder for any number of images, 'batch'."""
    vit = encoder.backbone
    channels = vit.patch_embed.projection.in_channels
    images = torch.zeros(2, channels, *vit.img_size)
    # PyTorch 2.6 does not export without an end.
    batch = torch.export.Dim('batch', max=2**31)
    with torch.no_grad():
        return torch.export.export(
            _Features(vit),
            (images,),
            dynamic_shapes=dict(images={0: batch}),
            strict=False,  # the default from PyTorch 2.7 on
        )


def write_onnx(encoder: Encoder, record: dict, folder: Path) -> None:
    """Write ``model.onnx``; weights above 2 GB lie beside it."""
    with warnings.catch_warnings():
        # PyTorch of what it uses itself.
        warnings.simplefilter('ignore', FutureWarning)
        torch.onnx.export(
            _exported(encoder),
            f=folder / 'model.onnx',
            input_names=['images'],
            output_names=('cls', 'avg', 'patches'),
            opset_version=18,
            dynamo=True,
            external_data=False,  # but for more than fits a file
            verbose=False,
        )


def write_torch_export(encoder: Encoder, record: dict, folder: Path) -> None:
    """Write ``model.pt2``, for ``torch.export.load``."""
    # On a full disk PyTorch's own file aborts the process.
    file = io.BytesIO()
    torch.export.save(_exported(encoder), file)
    (folder / 'model.pt2').write_bytes(file.getbuffer())
