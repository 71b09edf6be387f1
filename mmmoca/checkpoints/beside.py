# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads the JSON files that transformers and timm save with weights."""

import json
import math
import os
import re
from numbers import Real
from pathlib import Path

from .errors import CheckpointError

_RESAMPLING = {'2': 'bilinear', '3': 'bicubic'}  # Pillow's codes
# Names that transformers and timm give to files of weights. A config.json in
# the same folder describes only files with these names.
_WEIGHTS = re.compile(r'(pytorch_)?model\.(safetensors|bin)')


def record_beside(path: str | os.PathLike, naming: str) -> dict:
    """Read the JSON files in the same folder as a file of weights.

    They give the encoder's number of heads, the eps of its norms, and the
    preparation of its images. transformers writes ``config.json`` and
    ``preprocessor_config.json``; timm writes ``config.json``.

    Args:
        path (str | os.PathLike): The file of weights.
        naming (str): The library whose names the tensors have, see
            :class:`Place`.

    Returns:
        dict: ``num_heads``, ``norm_eps`` and ``preprocessing``, in the form
        in which this package records them. What the files do not say is left
        out. The dict is empty if the file or its weights do not have the names
        that these libraries use.

    Raises:
        CheckpointError: If the config names an activation other than GELU, or
            rotary positions other than DINOv3's.
    """
    path = Path(path)
    known = naming in ('huggingface', 'timm')
    if not (known and _WEIGHTS.fullmatch(path.name)):
        return {}
    config = _read(path.with_name('config.json'))
    model = _part(config, 'model_args')  # in timm's config
    kind = f'{config.get("model_type")} {config.get("architecture")}'
    activation = config.get('hidden_act') or model.get('act_layer') or 'gelu'
    if 'quickgelu' in kind or not f'{activation}'.startswith('gelu'):
        raise CheckpointError(
            f'the config.json next to {path} is for {kind} with the '
            f'activation {activation}: only encoders with GELU can be loaded'
        )
    if '_rope_' in kind:
        raise CheckpointError(
            f'the config.json next to {path} is for {kind}: the only rotary '
            "positions that can be loaded are DINOv3's"
        )
    rotary = config | _part(config, 'rope_parameters')
    theta = rotary.get('rope_theta') or model.get('rope_temperature') or 100
    if 'dinov3' in kind and theta != 100:
        raise CheckpointError(
            f'the config.json next to {path} has rope_theta={theta!r}: only '
            'encoders with 100, as in DINOv3, can be loaded'
        )
    record: dict = {}
    heads = config.get('num_attention_heads') or model.get('num_heads')
    if type(heads) is int and heads > 0:
        record['num_heads'] = heads
    eps = config.get('layer_norm_eps')
    if type(eps) is float and 0 < eps < 1:
        record['norm_eps'] = eps
    images = _read(path.with_name('preprocessor_config.json'))
    timm = _part(config, 'pretrained_cfg') or config
    mean = images.get('image_mean') or timm.get('mean')
    std = images.get('image_std') or timm.get('std')
    factor = images.get('rescale_factor', 1 / 255)
    usual = isinstance(factor, Real) and abs(255 * factor - 1) < 1e-3
    usual &= images.get('do_normalize') is not False
    if usual and _are_shares(mean) and _are_shares(std) and min(std) > 0:
        scaled = ([255.0 * n for n in numbers] for numbers in (mean, std))
        record['preprocessing'] = dict(zip(('mean', 'std'), scaled))
        steps = _resizing(images) if images else _timm_resizing(timm)
        if steps:
            record['preprocessing']['pipeline'] = steps
    return record


def _resizing(images: dict) -> list[dict]:
    """Return the transforms that resize and crop as transformers does.

    The list is empty if our transforms cannot do the same.
    """
    kind = _RESAMPLING.get(f'{images.get("resample")}')
    size, crop = _sides(images, 'size'), _sides(images, 'crop_size')
    edge, crops = size.get('shortest_edge'), images.get('do_center_crop')
    height, width = size.get('height'), size.get('width')
    side = crop.get('height')
    if kind and not crops and _is_side(height) and _is_side(width):
        return [_resize((width, height), kind)]
    square = _is_side(side) and side == crop.get('width')
    if kind and crops and _is_side(edge) and square:
        return [_resize(edge, kind), dict(type='CenterCrop', crop_size=side)]
    return []


def _sides(images: dict, name: str) -> dict:
    """Return a size as a dict; in older files it is one number."""
    number = images.get(name)
    if _is_side(number):
        return dict(height=number, width=number)
    return _part(images, name)


def _timm_resizing(images: dict) -> list[dict]:
    """Return the transforms that resize and crop as timm does in evaluation.

    The list is empty if our transforms cannot do the same.
    """
    size = images.get('input_size')
    side = size[-1] if isinstance(size, list) and size else None
    share, kind = images.get('crop_pct'), images.get('interpolation')
    known = _is_side(side) and isinstance(share, Real) and 0 < share <= 1
    if not known or kind not in _RESAMPLING.values():
        return []
    edge, mode = math.floor(side / share), images.get('crop_mode', 'center')
    if mode == 'squash' and edge == side:
        return [_resize((side, side), kind)]
    crop = dict(type='CenterCrop', crop_size=side)
    return [_resize(edge, kind), crop] if mode == 'center' else []


def _resize(scale: int | tuple, interpolation: str) -> dict:
    kind = 'ResizeEdge' if isinstance(scale, int) else 'Resize'
    options = dict(interpolation=interpolation, backend='pillow')
    return dict(type=kind, scale=scale, **options)


def _is_side(number: object) -> bool:
    return type(number) is int and number > 0


def _read(file: Path) -> dict:
    try:
        content = json.loads(file.read_text(encoding='utf-8-sig'))
    except (OSError, ValueError, RecursionError):  # missing, or not JSON
        return {}
    return content if isinstance(content, dict) else {}


def _part(config: dict, name: str) -> dict:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _are_shares(numbers: object) -> bool:
    """Return whether this is a list of numbers from 0 to 1."""
    return isinstance(numbers, list) and all(
        isinstance(n, Real) and not isinstance(n, bool) and 0 <= n <= 1
        for n in numbers
    )
