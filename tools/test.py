# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Test a checkpoint by a config: ``python tools/test.py CONFIG CKPT``."""

import argparse

from mmengine.config import Config

from _arguments import add_common_arguments, run_program


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description='Test a checkpoint')
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='the checkpoint file')
    out = 'where to write predictions (.pkl) or metrics (.json, .yml, .pkl)'
    add('--out', metavar='FILE', help=out)
    item = 'what to write there (by default pred)'
    add('--out-item', choices=['metrics', 'pred'], help=item)
    tta = "average over the config's tta_pipeline (a classifier: both flips)"
    add('--tta', action='store_true', help=tta)
    return parser


def check_out(args: argparse.Namespace) -> None:
    """Check that --out and --out-item fit each other.

    Args:
        args (argparse.Namespace): The command line.

    Raises:
        ValueError: If they do not.
    """
    if args.out_item is not None and args.out is None:
        raise ValueError('--out-item needs --out FILE')
    suffixes = ('.pkl', '.pickle')
    if args.out_item == 'metrics':
        suffixes += ('.json', '.yml', '.yaml')
    if args.out is not None and not args.out.endswith(suffixes):
        raise ValueError(f'--out {args.out} must end in {", ".join(suffixes)}')


def augment(cfg: Config) -> None:
    """Let a test average over augmented copies of each image.

    Args:
        cfg (Config): Its ``tta_pipeline`` and ``tta_model`` say how. For a
            classifier without them, they are as in mmpretrain's tool.

    Raises:
        ValueError: If the config has none.
    """
    from mmmoca.config_parts import short_name

    dataset = cfg.test_dataloader.dataset
    classifies = short_name(cfg.model) == 'ImageClassifier'
    usual_loop = 'type' not in cfg.test_cfg  # no frozen protocol
    if 'tta_pipeline' not in cfg and classifies and usual_loop:
        *steps, pack = dataset.pipeline
        flips = [dict(type='RandomFlip', prob=prob) for prob in (1.0, 0.0)]
        both = dict(type='TestTimeAug', transforms=[flips, [pack]])
        cfg.tta_pipeline = [*steps, both]
        cfg.tta_model = dict(type='AverageClsScoreTTA')
    if not cfg.get('tta_pipeline') or not cfg.get('tta_model'):
        raise ValueError(
            '--tta needs tta_pipeline and tta_model in the config, see '
            'TestTimeAug of mmcv'
        )
    dataset.pipeline = cfg.tta_pipeline
    hook = dict(type='PrepareTTAHook', tta_cfg=cfg.tta_model)
    cfg.custom_hooks = [*cfg.get('custom_hooks', []), hook]


def test(args: argparse.Namespace) -> None:
    """Test, and write what --out asks for.

    Args:
        args (argparse.Namespace): The command line.
    """
    check_out(args)
    from mmmoca.engine.config import read_run

    cfg = read_run(
        args.config,
        args.cfg_options,
        stages=['test'],
        work_dir=args.work_dir,
        launcher=args.launcher,
        checkpoint=args.checkpoint,
    )
    if args.tta:
        augment(cfg)
    import mmengine
    from mmengine.dist import is_main_process
    from mmengine.evaluator import DumpResults

    from mmmoca.engine.training import build_runner
    from mmmoca.files import atomic_write

    runner = build_runner(cfg)
    if args.out is not None and args.out_item != 'metrics':
        runner.test_evaluator.metrics.append(DumpResults(args.out))
    metrics = runner.test()
    if args.out_item == 'metrics' and is_main_process():
        # JSON knows no tensors, such as a confusion matrix.
        plain = {
            k: v.tolist() if hasattr(v, 'tolist') else v
            for k, v in metrics.items()
        }
        with atomic_write(args.out) as temporary:
            mmengine.dump(plain, str(temporary))


def main() -> None:
    """Run the test."""
    run_program(build_parser(), test)


if __name__ == '__main__':
    main()
