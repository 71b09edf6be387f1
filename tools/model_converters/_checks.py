# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the converters check, print and write."""

import argparse
from collections.abc import Mapping

import torch
from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn

from mmmoca.checkpoints import (
    CheckpointError,
    compare_states,
    file_sha256,
    listed,
    write_checkpoint,
)

__all__ = ['check', 'finish', 'vit_of_shapes']


def vit_of_shapes(state_dict: Mapping[str, Tensor]) -> nn.Module:
    """The ViT that a state dict must be of, without any values.

    Args:
        state_dict (Mapping[str, Tensor]): Names of mmpretrain's ViT.

    Returns:
        nn.Module: On the 'meta' device. Only names and shapes are right.
    """
    dims, channels, *patch = state_dict['patch_embed.projection.weight'].shape
    layers = [n.split('.')[1] for n in state_dict if n.startswith('layers.')]
    hidden = state_dict['layers.0.ffn.layers.0.0.weight'].shape[0]
    mean = 'ln2.weight' in state_dict
    patches = state_dict['pos_embed'].shape[1] - 1
    with torch.device('meta'):
        return VisionTransformer(
            arch=dict(
                embed_dims=dims,
                num_layers=1 + max(map(int, layers)),
                num_heads=1,
                feedforward_channels=hidden,
            ),
            # Any grid of so many patches has the same shapes.
            img_size=(patch[0], patch[1] * patches),
            patch_size=tuple(patch),
            in_channels=channels,
            out_type='avg_featmap' if mean else 'raw',
            final_norm=not mean or 'ln1.weight' in state_dict,
        )


def check(
    state_dict: Mapping[str, Tensor], model: nn.Module, left_out: list[str]
) -> None:
    """Print how a converted state dict fits its model.

    Args:
        state_dict (Mapping[str, Tensor]): The converted tensors.
        model (nn.Module): What they are for.
        left_out (List[str]): Names of the source that were not converted.

    Raises:
        CheckpointError: If nothing matches or shapes differ.
    """
    own = model.state_dict()
    shared, misshapen = compare_states(state_dict, own)
    if not shared:
        raise CheckpointError(
            f'no name of the model is in it; it has {listed(state_dict)}'
        )
    if misshapen:
        raise CheckpointError(
            f'its parts do not fit each other: {listed(misshapen)} should be '
            f'{listed(str(tuple(own[n].shape)) for n in misshapen)}'
        )
    print(f'matched: {len(shared)} of the {len(own)} names of the model')
    for title, names in (
        ('missing', own.keys() - shared),
        ('unexpected', state_dict.keys() - shared),
        ('left out', left_out),
    ):
        examples = f' ({listed(sorted(names))})' if names else ''
        print(f'{title}: {len(names)}{examples}')


def finish(checkpoint: dict, args: argparse.Namespace) -> None:
    """Record the source's checksum, write the result and name it.

    Args:
        checkpoint (dict): ``state_dict`` and ``meta``.
        args (argparse.Namespace): With ``src`` and ``dst``.
    """
    checkpoint['meta']['mmmoca']['sha256'] = file_sha256(args.src)
    write_checkpoint(checkpoint, args.dst)
    print(f'wrote {args.dst}')
