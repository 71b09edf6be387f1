# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Train a model with a config: ``python tools/train.py CONFIG``."""

import argparse
from typing import TYPE_CHECKING

from _arguments import (
    add_common_arguments,
    local_file,
    positive_integer,
    run_program,
)

if TYPE_CHECKING:
    from mmengine.config import Config

    from mmmoca.datasets.look import Look


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description='Train a model')
    add_common_arguments(parser)
    add = parser.add_argument
    resume = (
        'resume from CHECKPOINT (by default from the latest in the work dir)'
    )
    file = 'CHECKPOINT'
    add('--resume', nargs='?', const='auto', metavar=file, help=resume)
    init = (
        'start pretraining from these weights, of any known layout; with '
        '--resume, only if the work dir has no checkpoint'
    )
    add('--init', type=local_file, metavar='FILE', help=init)
    amp = 'train in mixed precision (on a CPU, only if it supports bfloat16)'
    add('--amp', action='store_true', help=amp)
    validate = 'skip the validation during training'
    add('--no-validate', action='store_true', help=validate)
    scale = 'scale the learning rate with the number of images per step'
    add('--auto-scale-lr', action='store_true', help=scale)
    dry = 'take four steps, describe the run, and write nothing'
    add('--check', action='store_true', help=dry)
    number = 'with --check: describe the run as if on N processes (GPUs)'
    add('--processes', type=positive_integer, metavar='N', help=number)
    return parser


def train(args: argparse.Namespace) -> None:
    """Train, or with --check describe what the run would be.

    Args:
        args (argparse.Namespace): The command line.

    Raises:
        ValueError: If --processes is given without --check.
    """
    if args.processes and not args.check:
        raise ValueError(
            '--processes needs --check; to train with N processes, use '
            'tools/dist_train.sh CONFIG N'
        )
    from mmmoca.engine.config import read_run

    cfg = read_run(
        args.config,
        args.cfg_options,
        stages=['train'] if args.no_validate else ['train', 'val'],
        work_dir=args.work_dir,
        launcher=args.launcher,
        init=args.init,
        resume=args.resume,
        amp=args.amp,
        auto_scale_lr=args.auto_scale_lr,
    )
    if args.check:
        check(cfg, args.processes)
        return
    from mmmoca.engine import training

    training.run(cfg)


def check(cfg: 'Config', processes: int | None) -> None:
    """Take four steps of a run, and print what the run would be.

    Args:
        cfg (Config): Config of the run.
        processes (int, optional): Number of processes that the run would have.
    """
    from mmengine.dist import is_main_process

    from mmmoca.engine.dry_run import dry_run
    from mmmoca.engine.recipe import count_micro_batches

    def begin(look: 'Look | None') -> None:
        if is_main_process():
            if look is not None:
                look.show()
            size = cfg.train_dataloader.get('batch_size')
            of = f'train_dataloader.batch_size={size}'
            if (parts := count_micro_batches(cfg)) > 1:
                of = f'each of {parts} micro-batches, {of}'
            print(f'Taking four steps, {of}\n')

    report = dry_run(cfg, begin, processes)
    if is_main_process():
        width = max(map(len, report))
        for name, value in report.items():
            print(f'{name:{width}}  {value}')


def main() -> None:
    """Train a model."""
    run_program(build_parser(), train)


if __name__ == '__main__':
    main()
