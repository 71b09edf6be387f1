# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Convert the authors' MOCA checkpoint: ``python moca_release.py SRC DST``.

By default its teacher, for ``load_from`` and ``Pretrained`` (with
``prefix='backbone.'``); by ``--full`` the whole model, for ``load_from`` of a
pretraining config.
"""

import argparse

from _convert import make_parser, report, run, write_backbone


def convert(args: argparse.Namespace) -> None:
    """Read, report and write."""
    from mmmoca.checkpoints import (
        CheckpointError,
        convert_release,
        read_backbone,
        read_checkpoint,
        write_converted,
    )

    if not args.full:
        backbone = read_backbone(args.src, args.which)
        if backbone.layout != 'moca':
            raise CheckpointError(
                f"{args.src} is not the authors' full model but of the "
                f'layout {backbone.layout}: convert it by extract_backbone.py'
            )
        write_backbone(backbone, args)
        return
    checkpoint, dropped = convert_release(read_checkpoint(args.src), args.src)
    report(checkpoint['state_dict'], dropped)
    write_converted(checkpoint, args.src, args.dst)
    print(f'wrote {args.dst}')


if __name__ == '__main__':
    parser = make_parser("Convert the authors' released checkpoint")
    parser.add_argument(
        '--full',
        action='store_true',
        help='convert the whole model, that pretraining goes on from it: '
        'load_from=DST. The optimiser and all schedules start anew',
    )
    run(parser, convert)
