# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw losses, k-NN accuracy, codebook and schedules of a MOCA run."""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import import_stack, run_program


def draw(args: argparse.Namespace) -> None:
    """Draw the curves of a run.

    Args:
        args (argparse.Namespace): The command line.

    Raises:
        FileNotFoundError: If there is no such run.
    """
    if not args.run.exists():
        raise FileNotFoundError(f'there is no {args.run}')
    import_stack()
    from mmmoca.files import write_figure
    from mmmoca.visualization.curves import draw_run

    folder = args.run if args.run.is_dir() else args.run.parent
    out = args.out or folder / 'curves.png'
    write_figure(out, draw_run(args.run))
    print(out)


def main() -> None:
    """Draw the curves that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('run', type=Path, help='a work dir, or the scalars.json of one run')
    out = (
        'the picture to write (by default curves.png in the work dir, or '
        'beside scalars.json)'
    )
    add('--out', type=Path, help=out)
    run_program(parser, draw)


if __name__ == '__main__':
    main()
