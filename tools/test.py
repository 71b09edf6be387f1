# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Test a checkpoint with a config: ``python tools/test.py CONFIG CKPT``."""

import argparse
import os
from typing import TYPE_CHECKING

from _arguments import add_common_arguments, run_program

if TYPE_CHECKING:
    from mmengine.config import Config
    from mmengine.runner import Runner

# Scope of a config -> hook that draws predictions. mmpretrain's hook is left
# out: it names a picture after the image file without its folder, so the
# pictures of equally named images in two folders would overwrite each other.
DRAWING = dict(mmseg='SegVisualizationHook', mmdet='DetVisualizationHook')


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description='Test a checkpoint')
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='the checkpoint file')
    out = 'where to write predictions (.pkl) or metrics (.json, .yml, .pkl)'
    add('--out', metavar='FILE', help=out)
    item = 'what to write to --out (by default pred)'
    add('--out-item', choices=['metrics', 'pred'], help=item)
    tta = (
        "average over the config's tta_pipeline; for a fine-tuned classifier "
        'without one, over an image and its flip'
    )
    add('--tta', action='store_true', help=tta)
    show = 'folder for pictures of the predicted masks or boxes'
    add('--show-dir', metavar='FOLDER', help=show)
    return parser


def check_out(args: argparse.Namespace) -> None:
    """Check that --out and --out-item fit each other.

    Args:
        args (argparse.Namespace): The command line.

    Raises:
        ValueError: If they do not fit.
    """
    if args.out_item is not None and args.out is None:
        raise ValueError('--out-item needs --out FILE')
    suffixes = ('.pkl', '.pickle')
    if args.out_item == 'metrics':
        suffixes += ('.json', '.yml', '.yaml')
    if args.out is not None and not args.out.endswith(suffixes):
        raise ValueError(
            f'--out {args.out} must end in {", ".join(suffixes)}. To write '
            'metrics to a .json file, use --out-item metrics'
        )


def draw_predictions(cfg: 'Config', folder: str) -> None:
    """Let a test draw the masks or boxes that it predicts.

    Args:
        cfg (Config): Config of the test, changed in place.
        folder (str): Folder for the pictures. mmseg writes them to
            ``vis_data/vis_image`` in this folder; so does mmdet if names of
            images repeat (see :func:`number_pictures`).

    Raises:
        ValueError: If the test predicts neither masks nor boxes.
    """
    hook = DRAWING.get(cfg.default_scope)
    loop = cfg.test_cfg.get('type', 'TestLoop')
    if hook is None or loop != 'TestLoop':
        raise ValueError(
            '--show-dir draws the masks or boxes of a trained head, which '
            'this test does not have: leave it out (overview.py --data DIR '
            'draws masks predicted in context)'
        )
    hooks = cfg.default_hooks
    options = hooks.get('visualization') or {}  # such as score_thr
    if options.get('type', hook) != hook:
        options = {}
    options = dict(options, type=hook, draw=True)
    if cfg.default_scope == 'mmdet':
        options['test_out_dir'] = os.path.abspath(folder)
    hooks.visualization = options
    cfg.visualizer.save_dir = folder


def number_pictures(runner: 'Runner') -> None:
    """Number mmdet's pictures if images in several folders share a name.

    Args:
        runner (Runner): Runner of the test.
    """
    for hook in runner.hooks:
        if not hasattr(hook, 'test_out_dir'):
            continue
        dataset = runner.test_loop.dataloader.dataset
        infos = map(dataset.get_data_info, range(len(dataset)))
        names = {os.path.basename(info['img_path']) for info in infos}
        if len(names) < len(dataset):
            hook.test_out_dir = None


def test(args: argparse.Namespace) -> None:
    """Test, and write what --out asks for.

    Args:
        args (argparse.Namespace): The command line.
    """
    check_out(args)
    from mmmoca.engine.config import read_run
    from mmmoca.engine.tta import augment_test

    cfg = read_run(
        args.config,
        args.cfg_options,
        stages=['test'],
        work_dir=args.work_dir,
        launcher=args.launcher,
        checkpoint=args.checkpoint,
    )
    if args.tta:
        augment_test(cfg)
    if args.show_dir is not None:
        draw_predictions(cfg, args.show_dir)
    import mmengine
    from mmengine.dist import is_main_process
    from mmengine.evaluator import DumpResults

    from mmmoca.engine.training import build_runner
    from mmmoca.files import atomic_write

    runner = build_runner(cfg)
    if args.out is not None and args.out_item != 'metrics':
        runner.test_evaluator.metrics.append(DumpResults(args.out))
    if args.show_dir is not None:
        number_pictures(runner)
    metrics = runner.test()
    if args.out_item == 'metrics' and is_main_process():
        # JSON cannot store tensors, such as a confusion matrix.
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
