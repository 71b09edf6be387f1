# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw losses, k-NN accuracy, codebook and schedules of a MOCA run."""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import import_stack, one_line_errors


def main() -> None:
    """Draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('run', type=Path, help='a work dir, or the scalars.json of one run')
    out = 'the picture (by default curves.png beside what is read)'
    add('--out', type=Path, help=out)
    args = parser.parse_args()
    if not args.run.exists():
        parser.error(f'there is no {args.run}')
    import_stack()
    from mmmoca.files import write_figure
    from mmmoca.visualization.curves import draw_run

    folder = args.run if args.run.is_dir() else args.run.parent
    out = args.out or folder / 'curves.png'
    with one_line_errors(parser, OSError, ValueError):
        figure = draw_run(args.run)
    write_figure(out, figure)
    print(out)


if __name__ == '__main__':
    main()
