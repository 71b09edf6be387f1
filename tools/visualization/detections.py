# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw what a detector finds: ``python .../detections.py CONFIG CKPT IMAGE``.

Boxes, masks, classes and scores, by mmdet's inferencer.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    add_model_arguments,
    image_file,
    import_stack,
    one_line_errors,
)


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description='Draw what a detector finds')
    add_model_arguments(parser)
    parser.add_argument(
        'images', nargs='+', type=image_file, help='image files'
    )
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('detections'),
        help='folder for the pictures, which keep their names (detections)',
    )
    parser.add_argument(
        '--score-thr',
        type=float,
        default=0.3,
        help='draw what has at least this score (0.3)',
    )
    args = parser.parse_args()
    names = [path.name for path in args.images]
    if len(set(names)) < len(names):
        parser.error('two images have the same name: draw them one by one')
    for path in args.images:
        if path.resolve().parent == args.out.resolve():
            parser.error(f'--out {args.out} would replace {path}')
    return parser, args


def main() -> None:
    """Draw the pictures."""
    parser, args = parse_args()
    import_stack()
    from mmmoca.stack import MissingOpsError, check_compiled_ops

    with one_line_errors(parser, MissingOpsError):
        check_compiled_ops()

    # isort: split
    import mmcv
    from mmdet.apis import DetInferencer
    from mmengine.config import Config

    from mmmoca.files import whole
    from mmmoca.visualization.inferencers import build_inferencer

    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    inferencer = build_inferencer(
        DetInferencer, cfg, args.checkpoint, 'DetLocalVisualizer'
    )
    for path in args.images:
        (picture,) = inferencer(
            str(path), return_vis=True, pred_score_thr=args.score_thr
        )['visualization']
        with whole(args.out / path.name) as temporary:
            mmcv.imwrite(picture[..., ::-1], str(temporary))
        print(args.out / path.name)


if __name__ == '__main__':
    main()
