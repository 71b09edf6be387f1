# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Train a model by a config: ``python tools/train.py CONFIG``."""

import argparse
import os
import sys
import traceback
from typing import TYPE_CHECKING

from _arguments import (
    add_common_arguments,
    local_file,
    one_line_errors,
    run_config,
)

if TYPE_CHECKING:
    from mmengine.config import Config


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description='Train a model')
    add_common_arguments(parser)
    add = parser.add_argument
    resume = 'resume from it, or from the latest in the work dir'
    file = 'CHECKPOINT'
    add('--resume', nargs='?', const='auto', metavar=file, help=resume)
    init = (
        'start pretraining from these weights, of any layout known; with '
        '--resume only where the work dir has no checkpoint'
    )
    add('--init', type=local_file, metavar='FILE', help=init)
    amp = 'train in mixed precision (on a CPU if it supports bfloat16)'
    add('--amp', action='store_true', help=amp)
    validate = 'leave out the validation during training'
    add('--no-validate', action='store_true', help=validate)
    scale = 'scale the learning rate by the images of a step'
    add('--auto-scale-lr', action='store_true', help=scale)
    dry = 'describe the run after three real steps, and write nothing'
    add('--check', action='store_true', help=dry)
    return parser, parser.parse_args()


def check(cfg: 'Config', written: dict[str, float]) -> None:
    """Print what the run would be.

    Args:
        cfg (Config): The completed config.
        written (dict[str, float]): What was completed, by key.
    """
    from mmengine.dist import is_main_process

    from mmmoca.engine.dry_run import dry_run

    report = dry_run(cfg)
    if not is_main_process():
        return
    report |= {key: f'{value:g}' for key, value in written.items()}
    width = max(map(len, report))
    for name, value in report.items():
        print(f'{name:{width}}  {value}')


def main() -> None:
    """Run the training."""
    parser, args = parse_args()
    stages = ['train'] if args.no_validate else ['train', 'val']
    cfg = run_config(parser, args, *stages)
    from mmmoca.engine import NonFiniteLossError, NonFiniteStateError
    from mmmoca.engine.training import prepare_training, train

    with one_line_errors(parser, Exception):
        written = prepare_training(
            cfg,
            init=args.init,
            resume=args.resume,
            amp=args.amp,
            validate=not args.no_validate,
            auto_scale_lr=args.auto_scale_lr,
        )
        if args.check:
            check(cfg, written)
            return
        try:
            train(cfg, written)
        except (NonFiniteLossError, NonFiniteStateError):
            # A status of its own, for whoever tries rates.
            traceback.print_exc()
            sys.exit(os.EX_DATAERR)


if __name__ == '__main__':
    main()
