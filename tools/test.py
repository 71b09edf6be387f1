# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Test a checkpoint by a config: ``python tools/test.py CONFIG CKPT``."""

import argparse

from _arguments import add_common_arguments, one_line_errors, run_config


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line and check that its arguments fit together."""
    parser = argparse.ArgumentParser(description='Test a checkpoint')
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='the checkpoint file')
    out = 'where to write predictions (.pkl) or metrics (.json, .yml, .pkl)'
    add('--out', metavar='FILE', help=out)
    item = 'what to write there (by default pred)'
    add('--out-item', choices=['metrics', 'pred'], help=item)
    args = parser.parse_args()
    if args.out_item is not None and args.out is None:
        parser.error('--out-item needs --out FILE')
    suffixes = ('.pkl', '.pickle')
    if args.out_item == 'metrics':
        suffixes += ('.json', '.yml', '.yaml')
    if args.out is not None and not args.out.endswith(suffixes):
        parser.error(f'--out {args.out} must end in {", ".join(suffixes)}')
    return parser, args


def main() -> None:
    """Run the test."""
    parser, args = parse_args()
    cfg = run_config(parser, args, 'test')
    import mmengine
    from mmengine.dist import is_main_process
    from mmengine.evaluator import DumpResults

    from mmmoca.engine.file_check import check_files
    from mmmoca.engine.training import build_runner
    from mmmoca.files import atomic_write

    with one_line_errors(parser, Exception):
        check_files(cfg, 'test')
        runner = build_runner(cfg)
        if args.out is not None and args.out_item != 'metrics':
            runner.test_evaluator.metrics.append(DumpResults(args.out))
        metrics = runner.test()
    if args.out_item == 'metrics' and is_main_process():
        with atomic_write(args.out) as temporary:
            mmengine.dump(metrics, str(temporary))


if __name__ == '__main__':
    main()
