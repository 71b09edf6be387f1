# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""List mmmoca's configs, or print one with everything that it inherits."""

import argparse
import os
import sys
import textwrap

from _arguments import add_cfg_options, config_file, run_program


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    config = (
        "a config file, or the name of one of mmmoca's configs (by default "
        'all are listed)'
    )
    add('config', type=config_file, nargs='?', help=config)
    add_cfg_options(parser)
    return parser


def show(args: argparse.Namespace) -> None:
    """Print the list of configs, or one config.

    Args:
        args (argparse.Namespace): The command line.
    """
    try:
        if args.config is None:
            list_configs()
        else:
            print_config(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def list_configs() -> None:
    """Print the name and the description of each config."""
    from mmmoca.shipped import first_comment, shipped, shipped_configs

    # A config directly in configs/ is left out: it does nothing but inherit
    # the one with the same name in a subfolder.
    files = {n: f for n, f in shipped_configs().items() if '/' in n}
    width = max(map(len, files))
    for name, file in files.items():
        line = textwrap.shorten(first_comment(file), 100, placeholder=' ...')
        print(f'{name:{width}}  {line}')
    folder = shipped('configs')
    # MMEngine finds `mmmoca::` only in the folder .mim of an installation.
    prefix = 'mmmoca::' if folder.parent.name == '.mim' else f'{folder}/'
    print(f"\nIn a config of your own: _base_ = '{prefix}FOLDER/NAME.py'")


def print_config(args: argparse.Namespace) -> None:
    """Print a config as a run reads it, without its helper variables.

    Args:
        args (argparse.Namespace): The command line.
    """
    from mmmoca.engine.config import read_run
    from mmmoca.engine.config_check import is_variable

    cfg = read_run(args.config, args.cfg_options)
    for name in filter(is_variable, [*cfg]):
        cfg.pop(name)
    print(cfg.pretty_text)


def main() -> None:
    """Show configs."""
    run_program(make_parser(), show)


if __name__ == '__main__':
    main()
