# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Convert a checkpoint of any known layout.

``--to mmpretrain``, the default, writes its ViT under mmpretrain's names with
the prefix ``backbone.``, for ``load_from`` and ``Pretrained`` (with
``prefix='backbone.'``) in mmpretrain, mmseg and mmdet. ``--to timm`` writes a
file for ``timm.create_model(..., num_classes=0, checkpoint_path=DST)``.
``--to moca`` writes the whole model of an authors' checkpoint, for
``load_from`` in a pretraining config; optimiser and schedules start anew.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    add_encoder_choice,
    import_stack,
    local_file,
    positive_integer,
    run_program,
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('src', type=local_file, help='the checkpoint to convert')
    add('dst', type=Path, help='the file to write: .safetensors or .pth')
    add('--to', choices=['mmpretrain', 'timm', 'moca'], default='mmpretrain')
    size = 'resize the position embedding for images of this size'
    add_encoder_choice(parser, size)
    way = (
        'interpolation for --img-size (default: bicubic); choose the one with '
        'which the model that loads DST resizes position embeddings'
    )
    ways = ['bicubic', 'bilinear']
    add('--interpolation', choices=ways, default='bicubic', help=way)
    channels = "adapt the patch projection to N channels, by timm's rule"
    add('--in-channels', type=positive_integer, metavar='N', help=channels)
    return parser


def check_target(args: argparse.Namespace) -> None:
    """Check that the arguments fit each other.

    Args:
        args (argparse.Namespace): The command line.

    Raises:
        ValueError: If they do not fit.
    """
    if args.dst.suffix not in ('.pth', '.safetensors'):
        raise ValueError(f'{args.dst} must end in .pth or .safetensors')
    if args.dst.exists() and os.path.samefile(args.src, args.dst):
        raise ValueError('DST is SRC: give the result a name of its own')
    adapted = args.img_size or args.in_channels or args.weights
    if args.to == 'moca' and adapted:
        raise ValueError(
            '--to moca takes the whole model as it is: leave out --img-size, '
            '--in-channels and --weights'
        )


def convert(args: argparse.Namespace) -> tuple[dict, list[str]]:
    """Read the checkpoint and adapt it.

    Args:
        args (argparse.Namespace): The command line.

    Returns:
        tuple[dict, list[str]]: The checkpoint to write, and the names of the
        source's tensors that are left out.

    Raises:
        CheckpointError: If the file cannot be converted in this way.
    """
    from mmmoca.checkpoints import (
        CheckpointError,
        adapt_backbone,
        backbone_checkpoint,
        read_backbone,
        read_checkpoint,
    )
    from mmmoca.checkpoints.names import TIMM
    from mmmoca.checkpoints.normal_form import TOKEN_PARTS
    from mmmoca.checkpoints.release import convert_release

    if args.to == 'moca':
        return convert_release(read_checkpoint(args.src), args.src)
    source = read_backbone(args.src, args.which, args.weights)
    backbone = adapt_backbone(
        source,
        img_size=args.img_size,
        mode=args.interpolation,
        source_grid=args.source_grid,
        in_channels=args.in_channels,
    )
    print(f'{args.src}: layout {backbone.layout}, {backbone.which} encoder')
    for change in backbone.changes:
        print(change)
    if args.img_size is not None:
        grid = args.source_grid or source.grid
        print(f'positions: {tuple(grid)} -> {backbone.grid} patches')
    checkpoint = backbone_checkpoint(backbone, args.src)
    tokens = backbone.state_dict.keys() & TOKEN_PARTS
    if tokens and args.to == 'mmpretrain':
        print(
            'the encoder has registers or rotary positions, which '
            "mmpretrain's ViT lacks: use the backbone type "
            'mmmoca.RegisterViT (registers) or mmmoca.DINOv3ViT (both)'
        )
    if args.to == 'timm':
        images = backbone.record.get('preprocessing') or {}
        if tokens or images.get('channel_order') == 'bgr':
            raise CheckpointError(
                f'{args.src} has registers or rotary positions, or expects '
                'BGR images: write it with tools/export.py --to timm'
            )
        checkpoint['state_dict'] = {
            TIMM.from_mmpretrain(name): value
            for name, value in backbone.state_dict.items()
        }
    return checkpoint, backbone.ignored


def write(args: argparse.Namespace) -> None:
    """Convert, say what is left out, and write.

    Args:
        args (argparse.Namespace): The command line.
    """
    check_target(args)
    import_stack()
    from mmmoca.checkpoints.write import file_sha256, write_checkpoint

    checkpoint, left_out = convert(args)
    converted = len(checkpoint['state_dict'])
    print(f'converted: {converted}; left out: {len(left_out)}')
    for name in left_out:
        print(f'  {name}')
    checkpoint['meta']['mmmoca']['sha256'] = file_sha256(args.src)
    write_checkpoint(checkpoint, args.dst)
    print(f'wrote {args.dst}')
    if args.to == 'mmpretrain':
        print(
            "init_cfg=dict(type='Pretrained', prefix='backbone.', "
            f"checkpoint='{args.dst}') of a backbone loads it"
        )


def main() -> None:
    """Convert a checkpoint."""
    run_program(build_parser(), write)


if __name__ == '__main__':
    main()
