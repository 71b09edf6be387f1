# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether the tensors of a checkpoint fit a model."""

import re
from collections.abc import Mapping

from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn

from .grids import position_grid
from .plain_vit import LAYER_SCALE
from .reading import CheckpointError, listed
from .records import record_of

__all__ = [
    'after_prefix',
    'check_fit',
    'other_shapes',
    'shape_advice',
]

# mmpretrain's backbones resize these while they are loaded.
_RESIZED = re.compile(r'(pos_embed|relative_position_\w+)$')


def check_fit(
    module: nn.Module,
    saved: Mapping[str, Tensor],
    meta: object,
    source: str,
    training: bool = True,
) -> str:
    """Refuse a checkpoint that MMEngine would not load rightly.

    Args:
        module (nn.Module): What it will be loaded into.
        saved (Mapping[str, Tensor]): The checkpoint's tensors.
        meta (object): ``meta`` of the checkpoint, whatever it holds.
        source (str): What to call it.
        training (bool): See :func:`check_encoders`.

    Returns:
        str: How many names match, with examples of those that do not.

    Raises:
        CheckpointError: If no name matches, shapes differ (but of what is
            resized while loading), or see :func:`check_grids` and
            :func:`check_encoders`.
    """
    own = module.state_dict()
    shared = saved.keys() & own.keys()
    misshapen = other_shapes(saved, own)
    report = f'{source}: {len(shared)} of its {len(own)} names match'
    for title, names in (
        ('of another shape', misshapen),
        ('missing', own.keys() - shared),
        ('unexpected', saved.keys() - shared),
    ):
        if names:
            report += f'; {len(names)} {title} ({listed(sorted(names))})'
    if misshapen:
        raise CheckpointError(
            f'{report}. {shape_advice(saved, own, misshapen[0])}'
        )
    if not shared:
        raise CheckpointError(
            f'{report}: build the model as the one that was saved, or load '
            "its backbone alone, by an init_cfg with prefix='backbone.'"
        )
    check_grids(module, saved, meta)
    check_encoders(module, saved, meta, training)
    return report


def other_shapes(
    saved: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> list[str]:
    """Names of other shapes, but for those that are resized while loading.

    Args:
        saved (Mapping[str, Tensor]): The checkpoint's tensors.
        own (Mapping[str, Tensor]): The model's.

    Returns:
        List[str]: Sorted.
    """
    return sorted(
        name
        for name in saved.keys() & own.keys()
        if saved[name].shape != own[name].shape and not _RESIZED.search(name)
    )


def shape_advice(
    saved: Mapping[str, Tensor], own: Mapping[str, Tensor], name: str
) -> str:
    """Both shapes of a name, and what to write in the config.

    Args:
        saved (Mapping[str, Tensor]): The checkpoint's tensors.
        own (Mapping[str, Tensor]): The model's.
        name (str): What differs.

    Returns:
        str: A sentence for an error.
    """
    there, here = (tuple(state[name].shape) for state in (saved, own))
    return (
        f'{name} is {there} in the file and {here} in the model: give the '
        'model the arch, patch_size and in_channels of the file, or load its '
        "backbone alone, by an init_cfg with prefix='backbone.' (tools/"
        'model_converters/extract_backbone.py --in-channels N adapts it to '
        'other images)'
    )


def check_grids(model: nn.Module, saved: Mapping, meta: object) -> None:
    """Refuse position embeddings that mmpretrain would resize wrongly.

    While it loads, mmpretrain takes every embedding of another length for a
    square one, and one of the same length for one of the same grid.

    Args:
        model (nn.Module): Its ViTs are checked.
        saved (Mapping[str, Tensor]): What it will load.
        meta (object): ``meta`` of the checkpoint, whatever it holds.

    Raises:
        CheckpointError: If a grid differs and is not resized rightly.
    """
    for name, module in model.named_modules():
        prefix = f'{name}.' if name else ''
        positions = saved.get(f'{prefix}pos_embed')
        if not isinstance(module, VisionTransformer) or positions is None:
            continue
        source = position_grid(meta, positions)
        target = tuple(module.patch_resolution)
        square = source is not None and source[0] == source[1]
        resized = positions.shape[1] != module.pos_embed.shape[1]
        if source == target or (square and resized):
            continue
        known = f'{source[0]} x {source[1]}' if source else 'not square'
        mode = module.interpolate_mode
        option = f' --interpolation {mode}' if mode != 'bicubic' else ''
        raise CheckpointError(
            f'the positions of {name or type(model).__name__} were trained on '
            f'a grid that is {known}, and mmpretrain cannot resize it to '
            f'{target[0]} x {target[1]}: resize it by tools/model_converters/'
            f'extract_backbone.py --img-size {module.img_size[0]} '
            f'{module.img_size[1]}{option}'
        )


def check_encoders(
    model: nn.Module,
    saved: Mapping[str, Tensor],
    meta: object,
    training: bool,
) -> None:
    """Refuse ViTs that would compute something else than those saved.

    A file without a final norm, as MAE's fine-tuned ones, leaves that of a
    frozen encoder as it was initialised, and LayerScale is lost where the
    model is built without it.

    Args:
        model (nn.Module): Its ViTs are checked, but for those of which
            nothing is loaded.
        saved (Mapping[str, Tensor]): What it will load.
        meta (object): ``meta`` of the checkpoint, whatever it holds.
        training (bool): Whether parameters that are not frozen are trained
            afterwards.

    Raises:
        CheckpointError: If a parameter stays as it was initialised, a part
            of a layer is lost, or the heads are of another number.
    """
    for name, module in model.named_modules():
        if not isinstance(module, VisionTransformer):
            continue
        prefix = f'{name}.' if name else ''
        own = dict(module.named_parameters())
        found = {n[len(prefix) :] for n in saved if n.startswith(prefix)}
        if not found & own.keys():
            continue
        role = name or type(module).__name__
        # What is recorded is of these, not of other ViTs of a model.
        if name.rpartition('.')[2] in ('', 'backbone', 'teacher'):
            heads = record_of(meta).get('num_heads')
            if heads not in (None, module.arch_settings['num_heads']):
                raise CheckpointError(
                    f'the encoder of the checkpoint has {heads} attention '
                    f'heads, {role} another number: write '
                    f'backbone.arch.num_heads={heads}'
                )
        missing = sorted(own.keys() - found)
        untrained = [
            name
            for name in missing
            if not (training and own[name].requires_grad)
            # Its initial factors make nearly nothing of a layer.
            or (name.endswith(tuple(LAYER_SCALE)) and (own[name] != 1).any())
        ]
        if untrained:
            raise CheckpointError(
                f'the checkpoint has no {listed(untrained)} of {role}, which '
                'would be used as initialised: build the model without it '
                '(final_norm=False, layer_scale_init_value=0), or give the '
                'checkpoint of an encoder that has it'
            )
        layers = tuple(f'layers.{i}.' for i in range(module.num_layers))
        lost = [n for n in found - own.keys() if n.startswith(layers)]
        if lost:
            raise CheckpointError(
                f'the layers of {role} have no {listed(sorted(lost))}, which '
                'the checkpoint has: build them alike, or read the file by '
                'mmmoca-teacher://FILE, which folds LayerScale'
            )


def after_prefix(
    state: Mapping[str, Tensor], prefix: str
) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, without it."""
    return {
        name[len(prefix) :]: value
        for name, value in state.items()
        if name.startswith(prefix)
    }
