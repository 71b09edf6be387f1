# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Train a model by a config: ``python tools/train.py CONFIG``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from _arguments import (
    add_common_arguments,
    checkpoint_file,
    load_config,
    one_line_errors,
)

if TYPE_CHECKING:
    from mmengine.config import Config


def _resumed_file(name: str) -> str:
    return name if name == 'auto' else checkpoint_file(name)


def _file(name: str) -> str:
    if not Path(name).expanduser().is_file():
        raise argparse.ArgumentTypeError(f'there is no file {name}')
    return name


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description='Train a model')
    add_common_arguments(parser)
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        type=_resumed_file,
        metavar='CHECKPOINT',
        help='go on from this checkpoint, or from the latest one in the '
        'work dir where none is named',
    )
    parser.add_argument(
        '--init',
        type=_file,
        metavar='FILE',
        help='start pretraining from these weights, of MOCA, DINO, DINOv2, '
        'iBOT, MAE, MSN, MoCo-v3, DeiT, timm or transformers; with --resume '
        'only where the work dir has no checkpoint',
    )
    parser.add_argument(
        '--amp',
        action='store_true',
        help='train in mixed precision (bf16 on a CPU)',
    )
    parser.add_argument(
        '--no-validate',
        action='store_true',
        help='leave out the validation during training',
    )
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help='scale the learning rate by the actual total batch size over '
        'auto_scale_lr.base_batch_size',
    )
    parser.add_argument(
        '--check',
        action='store_true',
        help='say what the run would be: images, rates, steps, time and '
        'memory, from three real steps; nothing is kept',
    )
    return parser, parser.parse_args()


def choose_weights(cfg: 'Config', args: argparse.Namespace) -> None:
    """Write into the config what the run starts from, or goes on with.

    Args:
        cfg (Config): The config, changed in place.
        args (argparse.Namespace): The parsed arguments.

    Raises:
        ValueError: If --init is not the only one.
    """
    if args.init is not None:
        for name, value in (
            ('load_from', cfg.get('load_from')),
            ('--resume', args.resume),
        ):
            if value not in (None, 'auto'):
                raise ValueError(
                    f'--init {args.init} and {name} {value} are two '
                    f'checkpoints to start from: leave out {name} or --init'
                )
        cfg.load_from = f'mmmoca-start://{args.init}'
    if args.resume == 'auto' and cfg.get('load_from') is not None:
        # A job that is put back into the queue before it has saved anything
        # still has to start from it.
        folder = Path(cfg.work_dir)
        if not any((*folder.glob('last_checkpoint'), *folder.glob('*.pth'))):
            return
    if args.resume is not None:
        cfg.resume = True
        cfg.load_from = None if args.resume == 'auto' else args.resume


def apply_arguments(cfg: 'Config', args: argparse.Namespace) -> None:
    """Write the arguments of training into the config.

    Args:
        cfg (Config): The config, changed in place.
        args (argparse.Namespace): The parsed arguments.

    Raises:
        ValueError: If an argument does not fit the config.
    """
    if args.no_validate:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    choose_weights(cfg, args)
    if args.auto_scale_lr:
        if cfg.get('auto_scale_lr') is None:
            raise ValueError(
                '--auto-scale-lr needs the batch size that the learning rate '
                'was chosen for: write auto_scale_lr=dict(base_batch_size=...)'
                ' in the config'
            )
        cfg.auto_scale_lr.enable = True
    if args.amp:
        wrapper = cfg.optim_wrapper
        kind = wrapper.get('type', 'OptimWrapper')
        if kind == 'OptimWrapper':
            wrapper.type = 'mmmoca.MixedPrecisionOptimWrapper'
        elif kind not in (
            'AmpOptimWrapper',
            'mmmoca.MixedPrecisionOptimWrapper',
        ):
            raise ValueError(
                '--amp can replace an OptimWrapper only, but the type of '
                f'optim_wrapper is {kind}: choose its precision in the config'
            )


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
    report += [(key, f'{value:g}') for key, value in written.items()]
    width = max(len(name) for name, _ in report)
    for name, value in report:
        print(f'{name:{width}}  {value}')


def main() -> None:
    """Run the training."""
    parser, args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else
    from mmmoca.engine.launch import build_runner, check_files
    from mmmoca.engine.recipe import complete_recipe

    cfg = load_config(parser, args)
    with one_line_errors(parser, FileNotFoundError, ValueError):
        apply_arguments(cfg, args)
        check_files(cfg, 'train', 'val')
        written = complete_recipe(cfg)
    if args.check:
        check(cfg, written)
        return
    runner = build_runner(cfg)
    if args.amp:
        runner.logger.info(
            f'--amp: the type of optim_wrapper is {cfg.optim_wrapper.type}'
        )
    for key, value in written.items():
        runner.logger.info(f'{key}={value:g} follows from images and steps')
    runner.train()


if __name__ == '__main__':
    main()
