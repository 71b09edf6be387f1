# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Take the ViT out of any checkpoint: ``python extract_backbone.py SRC DST``.

The result has mmpretrain's names after ``backbone.``, for ``load_from`` and
``Pretrained`` (with ``prefix='backbone.'``) in mmpretrain, mmseg and mmdet.
"""

import argparse
from typing import TYPE_CHECKING

from _convert import add_files, add_which, run

if TYPE_CHECKING:
    from mmmoca.checkpoints import Backbone

PROJECTION = 'patch_embed.projection.weight'


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description='Extract the backbone of a checkpoint: a pretraining run '
        "of mmmoca, the authors', DINO's, iBOT's, MAE's, MSN's, DeiT's, "
        "timm's or mmpretrain's"
    )
    add_files(parser)
    add_which(parser)
    parser.add_argument(
        '--img-size',
        nargs=2,
        type=int,
        metavar=('H', 'W'),
        help='resize the position embedding for images of this size',
    )
    parser.add_argument(
        '--interpolation',
        choices=['bicubic', 'bilinear'],
        default='bicubic',
        help="of --img-size: the interpolate_mode of the config's backbone "
        '(default: bicubic; Segmenter has bilinear)',
    )
    parser.add_argument(
        '--source-grid',
        nargs=2,
        type=int,
        metavar=('H', 'W'),
        help='patch rows and columns of the source (by default as its config '
        'records, else square)',
    )
    parser.add_argument(
        '--in-channels',
        type=int,
        metavar='N',
        help='adapt the patch projection to N channels: for 1 the sum over '
        'the old ones, else the old ones in turn, scaled by their number / N',
    )
    return parser


def resize(backbone: 'Backbone', img_size: list[int], mode: str) -> 'Backbone':
    """Resize the position embedding for images of another size.

    Args:
        backbone (Backbone): What was read, with its grid.
        img_size (List[int]): Height and width in pixels.
        mode (str): Interpolation, 'bicubic' or 'bilinear'.

    Returns:
        Backbone: With the new embedding and grid.

    Raises:
        CheckpointError: If the size is not a multiple of the patch.
    """
    from mmmoca.checkpoints import CheckpointError, resize_positions

    patch = backbone.state_dict[PROJECTION].shape[2:]
    if any(s < p or s % p for s, p in zip(img_size, patch)):
        raise CheckpointError(
            f'--img-size {img_size[0]} {img_size[1]} must be multiples of the '
            f'patch, {patch[0]} x {patch[1]}'
        )
    rows, columns = (side // p for side, p in zip(img_size, patch))
    resized = resize_positions(
        backbone.state_dict['pos_embed'], backbone.grid, (rows, columns), mode
    )
    print(f'positions: {backbone.grid} -> {(rows, columns)} patches')
    return backbone._replace(
        state_dict=backbone.state_dict | dict(pos_embed=resized),
        grid=(rows, columns),
    )


def convert(args: argparse.Namespace) -> None:
    """Extract, adapt, report and write."""
    from _checks import check, finish, vit_of_shapes
    from mmmoca.checkpoints import (
        CheckpointError,
        adapt_in_channels,
        backbone_checkpoint,
        read_backbone,
        resize_positions,
    )

    backbone = read_backbone(args.src, args.which)
    print(f'{args.src}: layout {backbone.layout}, {backbone.which} encoder')
    positions = backbone.state_dict['pos_embed']
    if args.source_grid is not None:
        backbone = backbone._replace(grid=tuple(args.source_grid))
        # Checks the number of patches.
        resize_positions(positions, backbone.grid, backbone.grid)
    if backbone.grid is None:
        raise CheckpointError(
            f'{args.src} has {positions.shape[1] - 1} patches, no square, and '
            'records no grid: give --source-grid H W'
        )
    if args.img_size is not None:
        backbone = resize(backbone, args.img_size, args.interpolation)
    if args.in_channels is not None:
        if args.in_channels < 1:
            raise CheckpointError('--in-channels must be 1 or more')
        adapted = adapt_in_channels(
            backbone.state_dict[PROJECTION], args.in_channels
        )
        backbone.state_dict[PROJECTION] = adapted
    check(
        backbone.state_dict,
        vit_of_shapes(backbone.state_dict),
        backbone.ignored,
    )
    finish(backbone_checkpoint(backbone, args.src), args)


if __name__ == '__main__':
    run(make_parser(), convert)
