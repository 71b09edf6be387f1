# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Write features of any number of images; rerunning continues a stopped run.

OUT is a ``.npy`` file, with the names of the images in ``OUT.names.txt``, or a
``.parquet`` file.
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

from _arguments import (
    add_encoder_arguments,
    encoder_arguments,
    import_stack,
    local_file,
    positive_integer,
    run_program,
)

SUFFIXES = ('.npy', '.parquet')


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    layouts = 'a file of any known layout (docs/guides/checkpoints.md)'
    add('checkpoint', type=local_file, metavar='CHECKPOINT', help=layouts)
    images = 'a folder of images or tar files, or a Hugging Face data set'
    add('images', metavar='IMAGES', help=images)
    out = 'the file to write: .npy, with names in OUT.names.txt, or .parquet'
    add('out', type=Path, metavar='OUT', help=out)
    feature = 'mean patch token, [CLS] or both (by default what k-NN uses)'
    add('--feature', choices=['avg', 'cls', 'cls-avg'], help=feature)
    add_encoder_arguments(parser)
    number = 'number of images at a time (64)'
    add('--batch-size', type=positive_integer, default=64, help=number)
    workers = 'workers per process that read images (one per core, up to 8)'
    add('--workers', type=int, help=workers)
    device = 'device, such as cpu or cuda:1 (by default a GPU if there is one)'
    add('--device', help=device)
    half = 'compute in half precision (bf16 on a CPU)'
    add('--amp', action='store_true', help=half)
    skip = 'write NaN for an image that cannot be read, and continue'
    add('--skip-unreadable', action='store_true', help=skip)
    launcher = 'pytorch: divide the images among the processes of torchrun'
    choices = ['none', 'pytorch']
    add('--launcher', choices=choices, default='none', help=launcher)
    return parser


def join_processes(device: str | None) -> str | None:
    """Join the processes of torchrun; return this process's device."""
    import torch

    # One process may have to wait until another has computed all its parts.
    torch.distributed.init_process_group('gloo', timeout=timedelta(days=7))
    if device is None and torch.cuda.is_available():
        return f'cuda:{os.environ["LOCAL_RANK"]}'
    return device


def embed(args: argparse.Namespace) -> None:
    """Write the features.

    Args:
        args (argparse.Namespace): The command line.
    """
    if args.out.suffix not in SUFFIXES:
        raise ValueError(f'{args.out} must end in {" or ".join(SUFFIXES)}')
    import_stack()
    import mmmoca
    from mmmoca.apis.embedding import embed_to_file
    from mmmoca.engine.processes import check_launcher
    from mmmoca.messages import listed

    check_launcher(args.launcher)
    device = args.device
    if args.launcher == 'pytorch':
        device = join_processes(device)
    encoder = mmmoca.load(
        args.checkpoint, device=device, **encoder_arguments(args)
    )
    earlier = args.out.stat().st_mtime_ns if args.out.exists() else None
    record = embed_to_file(
        encoder,
        args.images,
        args.out,
        feature=args.feature,
        batch_size=args.batch_size,
        num_workers=args.workers,
        amp=args.amp,
        skip_unreadable=args.skip_unreadable,
    )
    if int(os.environ.get('RANK', 0)) == 0:
        print(
            f'{args.out}: {record["number"]} x {record["width"]}, '
            f'{record["feature"]} of {record["checkpoint"]}'
        )
        if args.out.stat().st_mtime_ns == earlier:
            print('It already exists: nothing was computed')
        if record['unreadable']:
            names = record['unreadable']
            print(f'{len(names)} unreadable, written as NaN: {listed(names)}')


def main() -> None:
    """Write the features of images."""
    run_program(make_parser(), embed)


if __name__ == '__main__':
    main()
