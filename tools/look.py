# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Look at data: describe images, masks and boxes, and what stands out."""

import argparse

from _arguments import (
    add_cfg_options,
    import_stack,
    positive_integer,
    run_program,
)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = (
        'folders of images or of tar files, or Hugging Face data sets; or a '
        'config, whose masks and boxes are also examined'
    )
    parser.add_argument('data', nargs='+', metavar='DATA', help=data)
    pixels = 'number of images to decode in each data set (200)'
    parser.add_argument('--pixels', type=positive_integer, help=pixels)
    add_cfg_options(parser)
    return parser


def look(args: argparse.Namespace) -> None:
    """Print what the data contain.

    Args:
        args (argparse.Namespace): The command line.

    Raises:
        ValueError: If something is certainly wrong with the data.
    """
    import_stack()
    import mmmoca

    found = mmmoca.look(args.data, args.cfg_options, args.pixels)
    found.show()
    if found.wrong:
        raise ValueError(f'fix the {len(found.wrong)} lines marked !')


def main() -> None:
    """Look at data."""
    run_program(make_parser(), look)


if __name__ == '__main__':
    main()
