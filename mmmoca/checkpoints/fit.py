# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fits the encoder of a checkpoint to a model, and checks the fit.

MMEngine loads the tensors whose names match and only logs the rest. With a
wrong file or prefix, a model would stay untrained without an error.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn, ones_like

from mmmoca.messages import listed

from .backbone import Backbone
from .errors import CheckpointError
from .names import PROJECTION
from .normal_form import (
    LAYER_SCALE,
    adapt_in_channels,
    arch_of,
    check_floating,
    position_grid,
    token_parts,
)
from .record import record_of

TEACHER_CLS = 'teacher.cls_token'  # only models for pretraining have it
# Norms after the last layer: an encoder has ln1, and a classifier may have ln2
# instead.
FINAL_NORMS = {f'ln{n}.{part}' for n in '12' for part in ('weight', 'bias')}
_LAYER = re.compile(r'(?:^|.*\.)layers\.\d+\.')
# mmpretrain's backbones resize these tensors while loading them.
_RESIZED = re.compile(r'(pos_embed|relative_position_\w+)$')


def fit(
    backbone: Backbone, vit: VisionTransformer
) -> tuple[Backbone, list[str]]:
    """Fit an encoder to a ViT that will load its weights.

    Positions are resized here, because mmpretrain would treat the grid of the
    encoder as a square. The patch projection is adapted to the ViT's number of
    channels. LayerScale is already multiplied into the encoder's weights, so
    if the ViT has LayerScale, its factors become 1.

    Args:
        backbone (Backbone): The encoder.
        vit (VisionTransformer): The ViT, which is not changed.

    Returns:
        tuple[Backbone, list[str]]: The fitted encoder, and sentences for a
        log that say what was changed.
    """
    changes = []
    grid, target = backbone.grid, tuple(vit.patch_resolution)
    if grid not in (None, target) and 'pos_embed' in backbone.state_dict:
        changes.append(
            f'its positions are resized from {grid} to {target} patches'
        )
    backbone = backbone.resized(target, vit.interpolate_mode)
    state = dict(backbone.state_dict)
    old = state[PROJECTION].shape[1]
    channels = vit.patch_embed.projection.in_channels
    if old != channels:
        changes.append(f'its {old} channels become {channels}')
        state[PROJECTION] = adapt_in_channels(state[PROJECTION], channels)
    for name, value in vit.state_dict().items():
        if name.endswith(tuple(LAYER_SCALE)):
            state.setdefault(name, ones_like(value))
    return backbone._replace(state_dict=state), changes


def check_fit(
    module: nn.Module,
    saved: Mapping[str, Tensor],
    meta: object,
    source: str,
    training: bool = True,
) -> str:
    """Refuse a checkpoint that would be loaded wrongly or in part.

    Args:
        module (nn.Module): The module that will load the checkpoint.
        saved (Mapping[str, Tensor]): The checkpoint's tensors.
        meta (object): ``meta`` of the checkpoint, of any type.
        source (str): Name of the checkpoint in the report and in errors.
        training (bool): Whether parameters that are not frozen are trained
            afterwards. Defaults to True.

    Returns:
        str: A report: how many names match, with examples of names that do
        not.

    Raises:
        CheckpointError: If no name matches, or a layer matches only in part;
            if weights are not floating-point numbers; if shapes differ, except
            those of tensors that are resized while loading; if mmpretrain
            would resize positions wrongly; or if a ViT of the module would not
            compute what the saved ViT did.
    """
    own, record = module.state_dict(), record_of(meta)
    shared = saved.keys() & own.keys()
    lacking, unused = own.keys() - shared, saved.keys() - shared
    weights = [n for n in sorted(shared) if own[n].is_floating_point()]
    check_floating({name: saved[name] for name in weights}, source)
    vits = [
        (name, vit, after_prefix(saved, f'{name}.' if name else ''))
        for name, vit in module.named_modules()
        if isinstance(vit, VisionTransformer)
    ]
    roles = [name or type(vit).__name__ for name, vit, _ in vits]
    for role, (_, vit, part) in zip(roles, vits):
        _check_tokens(vit, part, role)
    misshapen = _misshapen(module, saved, own)
    report = f'{source}: {len(shared)} of {len(own)} names of the model match'
    for title, names in (
        ('of another shape', misshapen),
        ('missing', lacking),
        ('unexpected', unused),
    ):
        if names:
            report += f'; {len(names)} {title} ({listed(sorted(names))})'
    # This also notices a different number of layers, which shapes do not show.
    if options := _arch_options(vits, record):
        raise CheckpointError(
            f"the ViT in {source} differs from the config's: write {options}. "
            'If the ViT in the file was trained on images of another size, '
            'change img_size and the crops'
        )
    if misshapen:
        there, here = (tuple(s[misshapen[0]].shape) for s in (saved, own))
        raise CheckpointError(
            f'{report}. {misshapen[0]} is {there} in the file and {here} in '
            f"the model: set the model's {_key_of(misshapen)} as in the "
            f'file, or {_other_use(own)}'
        )
    if not shared:
        raise CheckpointError(
            f'{report}: build the same model as the one that was saved, or '
            f'{_other_use(own)}'
        )
    for role, (name, vit, part) in zip(roles, vits):
        if part.keys() & dict(vit.named_parameters()).keys():
            # The record of the file describes only ViTs with these names.
            known = name.rpartition('.')[2] in ('', 'backbone', 'teacher')
            _check_grid(vit, part, record, role)
            _check_vit(vit, part, record if known else {}, role, training)
    # Layers of another class, such as those of mmseg's ViT, may have only some
    # of the names of mmpretrain's layers.
    if _layers(lacking) & _layers(unused) & _layers(shared):
        raise CheckpointError(
            f'{report}: the layers are of another class, and would be loaded '
            'only in part. For a ViT, write '
            "type='mmpretrain.VisionTransformer' and its arguments"
        )
    return report


def _layers(names: Iterable[str]) -> set[str]:
    """Return the layers that contain these parameters."""
    return {found[0] for name in names if (found := _LAYER.match(name))}


def _misshapen(
    module: nn.Module, saved: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> list[str]:
    """Return the names of tensors whose shapes differ.

    Tensors that are resized while loading are left out.
    """
    # With num_words='auto' a codebook accepts any number of words.
    resized = {
        f'{name}.words'
        for name, part in module.named_modules()
        if getattr(part, 'takes_any_number', False)
    }
    return sorted(
        name
        for name in (saved.keys() & own.keys()) - resized
        if saved[name].shape != own[name].shape and not _RESIZED.search(name)
    )


def _other_use(own: Mapping[str, Tensor]) -> str:
    """Return advice on how else to use a file that does not fit."""
    if TEACHER_CLS in own:
        return (
            'pretrain from it with --init FILE, or test its encoder with a '
            'k-NN config, such as knn_vit-b16_in1k'
        )
    return (
        "load only its backbone, through an init_cfg with prefix='backbone.' "
        '(tools/model_converters/convert.py --in-channels N adapts it to '
        'another number of channels)'
    )


def _key_of(misshapen: list[str]) -> str:
    """Return the settings to change so that these shapes fit."""
    keys = (
        ('head', 'num_classes'),
        ('codebook.token_mean', 'img_size (and crops)'),
        ('codebook', 'num_words'),
        ('', 'patch_size and in_channels'),
    )
    found = (
        next(key for part, key in keys if part in name) for name in misshapen
    )
    return ', '.join(dict.fromkeys(found))


def _arch_options(
    vits: list[tuple[str, VisionTransformer, dict]], record: dict
) -> str:
    """Return the options with which the config builds the ViT of the file.

    Return '' if the ViTs have the same sizes.
    """
    needed = {PROJECTION, 'layers.0.ffn.layers.0.0.weight'}
    for _, vit, saved in vits:
        if not saved.keys() >= needed:
            continue
        arch, patch = arch_of(saved), _patch_option(vit, saved)
        if arch.items() - vit.arch_settings.items():
            zoo = vit.arch_zoo.items()
            known = [key for key, v in zoo if arch.items() <= v.items()]
            key = 'model.backbone.arch'
            if known:
                setting, whole = f'arch={known[0]}', f'{key}={known[0]}'
            else:
                arch['num_heads'] = record.get('num_heads') or 'N'
                sizes = [f'{name}={n}' for name, n in arch.items()]
                setting = f'arch = dict({", ".join(sizes)}) in a config file'
                sizes.insert(0, '_delete_=True')
                whole = ' '.join(f'{key}.{size}' for size in sizes)
            text = (
                f'{setting} if the config has this setting; otherwise '
                f'{whole}, and fit out_indices of the backbone and '
                'in_channels of necks and heads to this ViT'
            )
            if arch.get('num_heads') == 'N':
                text += '; N is the number of heads, which the file lacks'
            if patch:
                text += f'; also write {patch}'
            layers = arch['num_layers']
            if getattr(vit, 'tap_layer', None) and layers != vit.num_layers:
                tap = usual_tap(layers)
                text += f'; also write model.backbone.tap_layer={tap}'
            return text
        if patch:
            return patch
    return ''


def usual_tap(layers: int) -> int:
    """Return the layer that feeds the decoder in a ViT of this depth.

    The authors' code takes layer 8 of 12 and layer 20 of 24. A ViT of fewer
    than 12 layers keeps a third of them above the tap.
    """
    return max(layers - 4, layers * 2 // 3)


def _patch_option(vit: VisionTransformer, saved: Mapping[str, Tensor]) -> str:
    """Return the option for the file's patch size; '' if the ViT has it."""
    rows, columns = saved[PROJECTION].shape[-2:]
    if (rows, columns) == vit.patch_embed.projection.kernel_size:
        return ''
    patch = rows if rows == columns else f'({rows},{columns})'
    return f'model.backbone.patch_size={patch}'


def _check_tokens(
    vit: VisionTransformer, saved: Mapping[str, Tensor], role: str
) -> None:
    """Refuse a file that differs from the ViT in registers or positions."""
    if 'cls_token' not in saved:
        return
    file, model = map(token_parts, (saved, vit.state_dict()))
    if file != model:
        kinds = {(4, 'sincos'): 'RegisterViT', (4, 'rope'): 'DINOv3ViT'}
        kind = kinds.get(file, 'MOCAViT')
        advice = f'model.backbone.type=mmmoca.{kind}'
        if file not in kinds or type(vit).__name__ == kind:
            advice += (
                f' model.backbone.num_registers={file[0]} '
                f'model.backbone.positions={file[1]}'
            )
        raise CheckpointError(
            f'the encoder of the checkpoint has {file[0]} registers and '
            f'positions={file[1]}, but {role} has {model[0]} and {model[1]}: '
            f'write {advice}'
        )
    periods = saved.get('rotary_periods', ())
    if len(periods) and saved['cls_token'].shape == vit.cls_token.shape:
        # There is one period for every four channels of a head.
        _check_heads(vit, vit.embed_dims // (4 * len(periods)), role)


def _check_heads(vit: VisionTransformer, heads: int | None, role: str) -> None:
    """Refuse a known number of heads that differs from the ViT's."""
    if heads not in (None, vit.arch_settings['num_heads']):
        arch = dict(vit.arch_settings, num_heads=heads)
        text = ', '.join(f'{key}={value}' for key, value in arch.items())
        raise CheckpointError(
            f'the encoder of the checkpoint has {heads} attention heads, '
            f'but {role} has another number: write arch=dict({text}) for '
            'model.backbone in a config'
        )


def _check_grid(
    vit: VisionTransformer, saved: Mapping, record: dict, role: str
) -> None:
    """Refuse position embeddings that mmpretrain would resize wrongly.

    While loading, mmpretrain assumes that an embedding with as many positions
    as the model's has the model's grid. It assumes that any other embedding
    has a square grid.
    """
    if 'pos_embed' not in saved or vit.pos_embed is None:
        return
    positions, target = saved['pos_embed'], tuple(vit.patch_resolution)
    extra = vit.pos_embed.shape[1] - math.prod(target)
    source = position_grid(record.get('grid'), positions, extra)
    square = source is not None and source[0] == source[1]
    resized = positions.shape[1] != vit.pos_embed.shape[1]
    if source == target or (square and resized):
        return
    height, width = vit.img_size
    mode = vit.interpolate_mode
    option = f' --interpolation {mode}' if mode != 'bicubic' else ''
    known = ' x '.join(map(str, source)) if source else 'not square'
    raise CheckpointError(
        f'the positions of {role} in the file are for a patch grid that is '
        f'{known}, and mmpretrain cannot resize them to {target[0]} x '
        f'{target[1]}: run tools/model_converters/convert.py ... --img-size '
        f'{height} {width}{option}'
    )


def _check_vit(
    vit: VisionTransformer,
    saved: Mapping[str, Tensor],
    record: dict,
    role: str,
    training: bool,
) -> None:
    """Refuse a ViT that would compute something other than the saved one.

    Two examples: MAE's fine-tuned files have no final norm, so the final norm
    of a frozen ViT would stay untrained; a ViT without LayerScale would drop
    the factors in the file.
    """
    _check_heads(vit, record.get('num_heads'), role)
    own = dict(vit.named_parameters())
    untrained = [
        name
        for name in sorted(own.keys() - saved.keys())
        if not (training and own[name].requires_grad)
        # Untrained LayerScale is near 0, which switches off the layer.
        or (name.endswith(tuple(LAYER_SCALE)) and (own[name] != 1).any())
    ]
    if untrained:
        raise CheckpointError(
            f'the checkpoint lacks {listed(untrained)} of {role}, which would '
            'stay untrained: use a checkpoint that has them (for a test, one '
            'from the training of this model), build the model '
            'without them (final_norm=False, layer_scale_init_value=0, or an '
            'out_type without a norm of its own), or freeze fewer layers'
        )
    layers = tuple(f'layers.{i}.' for i in range(vit.num_layers))
    lost = [n for n in saved.keys() - own.keys() if n.startswith(layers)]
    if lost:
        raise CheckpointError(
            f'the layers of {role} have no {listed(sorted(lost))}, which '
            'the checkpoint has: build the model with them, or read the file '
            'as mmmoca-teacher://FILE, which multiplies LayerScale into the '
            'projections'
        )


def without_final_norm(
    checkpoint: dict, model: nn.Module, prefix: str
) -> dict:
    """Return a checkpoint without the final norms that a ViT lacks.

    Feature pyramids and classifiers have other norms instead. MMEngine would
    warn that those in the checkpoint are not used.

    Args:
        checkpoint (dict): Content of a checkpoint file. Not changed.
        model (nn.Module): The ViT. For a model of another class, the
            checkpoint is returned as it is.
        prefix (str): Prefix of the ViT's names in the checkpoint, with its
            dot; or ''.

    Returns:
        dict: The checkpoint without these norms.
    """
    if not isinstance(model, VisionTransformer):
        return checkpoint
    state = loaded_names(checkpoint)
    lost = {prefix + name for name in FINAL_NORMS - model.state_dict().keys()}
    kept = {name: value for name, value in state.items() if name not in lost}
    return checkpoint | dict(state_dict=kept)


def loaded_names(checkpoint: dict) -> dict[str, Any]:
    """Return the weights of a checkpoint under the names MMEngine uses.

    Args:
        checkpoint (dict): Content of a checkpoint file: the weights, or a
            dict that has them under ``state_dict``.
    """
    state = checkpoint.get('state_dict', checkpoint)
    return {str(k).removeprefix('module.'): v for k, v in state.items()}


def after_prefix(
    state: Mapping[str, Tensor], prefix: str
) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without the prefix."""
    return {
        name.removeprefix(prefix): value
        for name, value in state.items()
        if name.startswith(prefix)
    }
