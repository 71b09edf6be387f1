# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Convert the authors' released checkpoint.

By default its teacher, for ``load_from`` and ``Pretrained`` (with
``prefix='backbone.'``); by ``--full`` the whole model, for ``load_from`` of a
pretraining config.
"""

import argparse

from _convert import make_parser, run, write, write_backbone


def convert(args: argparse.Namespace) -> None:
    """Read, report and write."""
    from mmmoca.checkpoints import (
        CheckpointError,
        convert_release,
        read_backbone,
        read_checkpoint,
    )

    if args.full:
        content = read_checkpoint(args.src)
        checkpoint, left_out = convert_release(content, args.src)
        write(checkpoint, args, checkpoint['state_dict'], left_out)
        return
    backbone = read_backbone(args.src, args.which)
    if backbone.layout != 'moca':
        raise CheckpointError(
            f"{args.src} is not the authors' full model but of the layout "
            f'{backbone.layout}: convert it by extract_backbone.py'
        )
    write_backbone(backbone, args)


if __name__ == '__main__':
    parser = make_parser(__doc__.splitlines()[0])
    full = (
        'convert the whole model, so that pretraining can continue from it '
        '(load_from=DST). The optimiser and all schedules start anew'
    )
    parser.add_argument('--full', action='store_true', help=full)
    run(parser, convert)
