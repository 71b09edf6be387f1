# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether the tensors of a checkpoint fit a model."""

import re
from collections.abc import Mapping

from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn

from .grids import position_grid
from .plain_vit import LAYER_SCALE, PROJECTION, arch_of
from .reading import CheckpointError, listed
from .records import record_of

__all__ = [
    'after_prefix',
    'check_architecture',
    'check_fit',
    'check_heads',
]

# mmpretrain's backbones resize these while they are loaded.
_RESIZED = re.compile(r'(pos_embed|relative_position_\w+)$')
# Swin's have a projection of that name, too.
_HIDDEN = 'layers.0.ffn.layers.0.0.weight'


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
    misshapen = sorted(
        name
        for name in shared
        if saved[name].shape != own[name].shape and not _RESIZED.search(name)
    )
    report = f'{source}: {len(shared)} of its {len(own)} names match'
    for title, names in (
        ('of another shape', misshapen),
        ('missing', own.keys() - shared),
        ('unexpected', saved.keys() - shared),
    ):
        if names:
            report += f'; {len(names)} {title} ({listed(sorted(names))})'
    check_shapes(saved, own, misshapen, source)
    if misshapen or not shared:
        raise CheckpointError(
            f'{report}: build the model as the one that was saved, or load '
            "its backbone alone, by an init_cfg with prefix='backbone.'"
        )
    check_grids(module, saved, meta)
    check_encoders(module, saved, meta, training)
    return report


def check_shapes(
    saved: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    misshapen: list[str],
    source: str,
) -> None:
    """Say what to write where a ViT is of other sizes or other channels.

    Args:
        saved (Mapping[str, Tensor]): The checkpoint's tensors.
        own (Mapping[str, Tensor]): The model's.
        misshapen (List[str]): Names that differ in shape.
        source (str): What to call the checkpoint.

    Raises:
        CheckpointError: If that is what differs.
    """
    for name in misshapen:
        prefix = name.removesuffix(PROJECTION)
        vits = after_prefix(saved, prefix), after_prefix(own, prefix)
        if prefix != name and all(_HIDDEN in vit for vit in vits):
            further = ', and its channels where necks and heads name them'
            check_architecture(*vits, source, further)
    if misshapen and all(
        name.endswith(PROJECTION)
        and _but_channels(saved[name]) == _but_channels(own[name])
        for name in misshapen
    ):
        there, here = (state[misshapen[0]].shape[1] for state in (saved, own))
        raise CheckpointError(
            f'{source} is of images of {there} channels, the model has '
            f'in_channels={here}: write backbone.in_channels={there} (and the '
            'loader, mean and std for it), or adapt the checkpoint by '
            'tools/model_converters/extract_backbone.py --in-channels '
            f'{here}'
        )


def check_architecture(
    theirs: Mapping[str, Tensor],
    ours: Mapping[str, Tensor],
    source: str,
    further: str = '',
) -> None:
    """Refuse a ViT of other sizes, and say what to write for it.

    Args:
        theirs (Mapping[str, Tensor]): Tensors of the checkpoint's ViT, under
            mmpretrain's names without a prefix.
        ours (Mapping[str, Tensor]): Those of the model's.
        source (str): What to call the checkpoint.
        further (str): What else to write for another architecture.

    Raises:
        CheckpointError: If patches, layers or channels differ.
    """
    patches = [tuple(part[PROJECTION].shape[2:]) for part in (theirs, ours)]
    if patches[0] != patches[1]:
        height, width = patches[0]
        key = height if height == width else f'"({height},{width})"'
        raise CheckpointError(
            f'{source} has patches of {patches[0]} pixels and the model of '
            f'{patches[1]}: write model.backbone.patch_size={key}, with an '
            'img_size (and crops) of a multiple'
        )
    archs = [arch_of(part) for part in (theirs, ours)]
    if archs[0] != archs[1]:
        raise CheckpointError(
            f'the ViT of {source} has {_described(archs[0])}, and that of '
            f'the model {_described(archs[1])}: write '
            f'{_arch_key(archs[0])}{further}'
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


def check_heads(vit: VisionTransformer, meta: object, role: str) -> None:
    """Refuse a ViT of another number of heads, which no shape tells.

    Args:
        vit (VisionTransformer): What a checkpoint is loaded into.
        meta (object): ``meta`` of the checkpoint, whatever it holds.
        role (str): What to call the ViT in errors.

    Raises:
        CheckpointError: If the checkpoint records another number.
    """
    heads = record_of(meta).get('num_heads')
    own = vit.arch_settings['num_heads']
    if heads not in (None, own):
        raise CheckpointError(
            f'the encoder of the checkpoint has {heads} attention heads and '
            f'{role} has {own}, so that it would compute something else: '
            f'write backbone.arch.num_heads={heads}, or the arch that it was '
            'trained with'
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
            check_heads(module, meta, role)
        missing = sorted(own.keys() - found)
        scaled = [n for n in missing if n.endswith(tuple(LAYER_SCALE))]
        if any((own[n] != 1).any() for n in scaled):
            raise CheckpointError(
                f'the checkpoint has no {listed(scaled)} of {role}, which '
                'would make nearly nothing of its layers: leave out '
                'layer_scale_init_value (mmmoca-teacher://FILE has the '
                'factors of LayerScale in the weights that they scale)'
            )
        untrained = [
            n for n in missing if not (training and own[n].requires_grad)
        ]
        if untrained:
            advice = 'give the checkpoint of an encoder that has all of it'
            if untrained[0].startswith('ln1.'):
                advice += ', or leave the final norm out by final_norm=False'
            raise CheckpointError(
                f'the checkpoint has no {listed(untrained)} of {role}, which '
                f'would be used as initialised: {advice}'
            )
        layers = tuple(f'layers.{i}.' for i in range(module.num_layers))
        lost = [n for n in found - own.keys() if n.startswith(layers)]
        if lost:
            raise CheckpointError(
                f'the layers of {role} have no {listed(sorted(lost))}, which '
                'the checkpoint has: build them alike, for LayerScale (gamma1 '
                'and gamma2) by layer_scale_init_value=1e-5, or read the file '
                'by mmmoca-teacher://FILE, which needs none'
            )


def _described(arch: dict[str, int]) -> str:
    return (
        f'{arch["num_layers"]} layers of {arch["embed_dims"]} and '
        f'{arch["feedforward_channels"]} channels'
    )


def _arch_key(arch: dict[str, int]) -> str:
    """What to write for an architecture, by the name that mmpretrain has."""
    names = [
        name
        for name, sizes in VisionTransformer.arch_zoo.items()
        if arch.items() <= sizes.items()
    ]
    if names:
        return f'model.backbone.arch={min(names, key=len)}'
    settings = ', '.join(f'{key}={value}' for key, value in arch.items())
    return f'model.backbone.arch=dict({settings}, num_heads=...)'


def _but_channels(projection: Tensor) -> tuple[int, ...]:
    return projection.shape[:1] + projection.shape[2:]


def after_prefix(
    state: Mapping[str, Tensor], prefix: str
) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, without it."""
    return {
        name[len(prefix) :]: value
        for name, value in state.items()
        if name.startswith(prefix)
    }
