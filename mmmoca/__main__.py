# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The command ``mmmoca``: the main programs of ``tools/`` under one name."""

import argparse
import sys
from importlib import import_module

from .files import shipped

__all__ = ['main']

# What each of them runs, and what it is for.
COMMANDS = dict(
    pretrain=(['train'], 'train by a config'),
    embed=(['embed'], 'write features of images'),
    export=(['export'], 'write an encoder for other libraries'),
    check=(['train', '--check'], 'say what a training would be'),
)


def main() -> None:
    """Run the program that the command line names, with its arguments."""
    parser = argparse.ArgumentParser(
        'mmmoca',
        description='; '.join(f'{k}: {v}' for k, (_, v) in COMMANDS.items()),
        epilog='Arguments of a command: mmmoca COMMAND --help',
    )
    parser.add_argument('command', choices=COMMANDS)
    parser.add_argument('arguments', nargs=argparse.REMAINDER)
    args = parser.parse_args()
    (tool, *options), _ = COMMANDS[args.command]
    sys.argv = [f'mmmoca {args.command}', *options, *args.arguments]
    # Programs import the modules beside them.
    sys.path[0] = str(shipped('tools'))
    import_module(tool).main()


if __name__ == '__main__':
    main()
