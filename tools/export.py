# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Write the encoder of a checkpoint for other libraries.

OUT is a folder that timm, transformers, ONNX Runtime, PyTorch or this package
loads. It contains a model card.
"""

import argparse
import re

from _arguments import (
    add_encoder_arguments,
    encoder_arguments,
    import_stack,
    local_file,
    run_program,
)

# The keys of mmmoca.apis.export.FORMATS.
FORMATS = (
    *('timm', 'transformers', 'dinov2'),
    *('onnx', 'torch-export', 'safetensors'),
)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    layouts = 'a file of any known layout'
    add('checkpoint', type=local_file, help=layouts)
    add('out', help='the folder to make')
    add('--to', choices=FORMATS, required=True)
    add_encoder_arguments(parser)
    card = (
        'license of the weights, for the model card: an SPDX identifier such '
        'as cc-by-4.0'
    )
    add('--license', metavar='ID', help=card)
    return parser


def export(args: argparse.Namespace) -> None:
    """Read a checkpoint and write its encoder.

    Args:
        args (argparse.Namespace): The command line.

    Raises:
        ValueError: If the license is not an identifier.
    """
    if not re.fullmatch(r'[\w.+-]+', args.license or 'none'):
        raise ValueError(
            f'--license {args.license!r} is not an identifier such as '
            'cc-by-4.0'
        )
    import_stack()
    import mmmoca
    from mmmoca.apis.export import check_target, export_encoder

    check_target(args.out, args.to)
    encoder = mmmoca.load(
        args.checkpoint, device='cpu', **encoder_arguments(args)
    )
    export_encoder(encoder, args.out, args.to, args.license)
    print(f'wrote {args.out}')


def main() -> None:
    """Write an encoder for other libraries."""
    run_program(make_parser(), export)


if __name__ == '__main__':
    main()
