# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw what a detector finds: ``python .../detections.py CONFIG CKPT IMAGE``.

Boxes, masks, classes and scores, by mmdet's visualiser.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import add_model_arguments, image_file


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
    import mmmoca  # noqa: F401  checks the installation before all else
    from mmmoca.stack import MissingOpsError, check_compiled_ops

    try:
        check_compiled_ops()
    except MissingOpsError as error:
        parser.error(str(error))
    from _detections import write_pictures

    for path in write_pictures(args):
        print(path)


if __name__ == '__main__':
    main()
