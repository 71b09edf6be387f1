# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the converters have in common."""

import argparse
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import add_which, import_stack, local_file, one_line_errors

if TYPE_CHECKING:
    from mmmoca.checkpoints import Backbone


def make_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the arguments SRC, DST and --which."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add('src', type=local_file, help='the checkpoint to convert')
    target = 'what to write: .safetensors, or .pth'
    add('dst', type=Path, help=target)
    add_which(parser)
    return parser


def run(
    parser: argparse.ArgumentParser,
    convert: Callable[[argparse.Namespace], None],
) -> None:
    """Parse the command line and convert.

    Ends the program with one line where the checkpoint cannot be converted.

    Args:
        parser (argparse.ArgumentParser): With the arguments of the tool.
        convert (Callable): What to do with them. It imports what it needs:
            the arguments are parsed without PyTorch.
    """
    args = parser.parse_args()
    if args.dst.suffix not in ('.pth', '.safetensors'):
        parser.error(f'{args.dst} must end in .pth or .safetensors')
    if args.dst.exists() and os.path.samefile(args.src, args.dst):
        parser.error('DST is SRC: give the result a name of its own')
    import_stack()
    from mmmoca.checkpoints import CheckpointError

    with one_line_errors(parser, CheckpointError, OSError):
        convert(args)


def write(
    checkpoint: dict,
    args: argparse.Namespace,
    converted: Collection[str],
    left_out: Collection[str],
) -> None:
    """Write a checkpoint, and print which names it has and which not.

    Args:
        checkpoint (dict): What to write.
        args (argparse.Namespace): With ``src`` and ``dst``.
        converted (Collection[str]): Names of the source that are converted.
        left_out (Collection[str]): Those that are not.
    """
    from mmmoca.checkpoints.writing import file_sha256, write_checkpoint

    print(f'converted: {len(converted)}; left out: {len(left_out)}')
    for name in left_out:
        print(f'  {name}')
    checkpoint['meta']['mmmoca']['sha256'] = file_sha256(args.src)
    write_checkpoint(checkpoint, args.dst)
    print(f'wrote {args.dst}')


def write_backbone(
    backbone: 'Backbone',
    args: argparse.Namespace,
    rename: Callable[[str], str] | None = None,
) -> None:
    """Say what is converted, and write it.

    Args:
        backbone (Backbone): What was read, adapted perhaps.
        args (argparse.Namespace): With ``src`` and ``dst``.
        rename (Callable, optional): From mmpretrain's names to those in the
            file; by default they stand after ``backbone.``.
    """
    from mmmoca.checkpoints import backbone_checkpoint

    print(f'{args.src}: layout {backbone.layout}, {backbone.which} encoder')
    for change in backbone.changes:
        print(change)
    state = backbone.state_dict
    checkpoint = backbone_checkpoint(backbone, args.src)
    if rename is not None:
        renamed = {rename(name): value for name, value in state.items()}
        checkpoint['state_dict'] = renamed
    write(checkpoint, args, state, backbone.ignored)
