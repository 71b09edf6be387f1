# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Convert a ViT of any layout known to mmpretrain's or timm's names.

``python timm_vit.py SRC DST --to timm`` makes what
``timm.create_model(..., num_classes=0, checkpoint_path=DST)`` loads;
``--to mmpretrain`` (the default) what ``Pretrained`` and ``load_from`` load.
"""

import argparse

from _convert import make_parser, run, write_backbone


def convert(args: argparse.Namespace) -> None:
    """Read, report and write."""
    from mmmoca.checkpoints import CheckpointError, read_backbone
    from mmmoca.checkpoints.keys import TIMM
    from mmmoca.checkpoints.layouts import record_of

    backbone = read_backbone(args.src, args.which)
    images = record_of(backbone.meta).get('preprocessing') or {}
    if args.to == 'timm' and images.get('channel_order') == 'bgr':
        raise CheckpointError(
            f'{args.src} is of BGR images, and timm loads RGB: write it by '
            'tools/export.py --to timm, which turns the patch projection'
        )
    rename = TIMM.from_mmpretrain if args.to == 'timm' else None
    write_backbone(backbone, args, rename)


if __name__ == '__main__':
    parser = make_parser(__doc__.splitlines()[0])
    names = dict(choices=['mmpretrain', 'timm'], default='mmpretrain')
    parser.add_argument('--to', **names)
    run(parser, convert)
