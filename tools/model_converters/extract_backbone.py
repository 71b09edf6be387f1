# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Extract the ViT of a checkpoint of any layout known.

The result has mmpretrain's names after ``backbone.``, for ``load_from`` and
``Pretrained`` (with ``prefix='backbone.'``) in mmpretrain, mmseg and mmdet.
"""

import argparse

from _convert import make_parser, run, write_backbone

# isort: split
from _arguments import add_source_grid, positive_integer


def convert(args: argparse.Namespace) -> None:
    """Extract, adapt, report and write."""
    from mmmoca.checkpoints import adapt_backbone, read_backbone

    backbone = read_backbone(args.src, args.which)
    adapted = adapt_backbone(
        backbone,
        img_size=args.img_size,
        mode=args.interpolation,
        source_grid=args.source_grid,
        in_channels=args.in_channels,
    )
    if args.img_size is not None:
        source = args.source_grid or backbone.grid
        print(f'positions: {tuple(source)} -> {adapted.grid} patches')
    write_backbone(adapted, args)


if __name__ == '__main__':
    parser = make_parser(__doc__.splitlines()[0])
    add = parser.add_argument
    size = 'resize the position embedding for images of this size'
    sides = dict(nargs=2, type=positive_integer, metavar=('H', 'W'))
    add('--img-size', help=size, **sides)
    way = (
        "of --img-size: the interpolate_mode of the config's backbone "
        '(default: bicubic; Segmenter has bilinear)'
    )
    ways = dict(choices=['bicubic', 'bilinear'], default='bicubic')
    add('--interpolation', help=way, **ways)
    add_source_grid(parser)
    channels = (
        'adapt the patch projection to N channels: for 1 the sum over the old '
        'ones, else the old ones in turn, scaled by their number / N'
    )
    add('--in-channels', type=positive_integer, metavar='N', help=channels)
    run(parser, convert)
