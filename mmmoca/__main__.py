# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The command ``mmmoca``, which runs the main programs of ``tools/``."""

import argparse
import sys
from importlib import import_module

from .files import shipped

# The program and its options for each command, and its purpose.
COMMANDS = dict(
    pretrain=(['train'], 'train by a config'),
    embed=(['embed'], 'write features of images'),
    export=(['export'], 'write an encoder for other libraries'),
    check=(['train', '--check'], 'say what a training would be'),
)


def main() -> None:
    """Run the program of a command with the other arguments."""
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
    # Programs import modules from their own folder.
    sys.path[0] = str(shipped('tools'))
    import_module(tool).main()


if __name__ == '__main__':
    main()
