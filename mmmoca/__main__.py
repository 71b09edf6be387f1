# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The command ``mmmoca``, which runs the programs of ``tools/``."""

import argparse
import sys
from importlib import import_module

from .shipped import shipped
from .version import __version__

# Each command with its program, the options of the program, and a description.
COMMANDS = dict(
    configs=(['configs'], 'list the configs; print one with what it inherits'),
    look=(['look'], 'report on images, masks and boxes'),
    check=(['train', '--check'], 'describe a run, and write nothing'),
    pretrain=(['train'], 'pretrain with a config'),
    train=(['train'], 'like pretrain, also for linear probes and other tasks'),
    test=(['test'], 'test a checkpoint with a config'),
    embed=(['embed'], 'write the features of images to a file'),
    compare=(['analysis_tools/compare'], 'compare checkpoints'),
    export=(['export'], 'write an encoder for other libraries'),
    curves=(['analysis_tools/plot_curves'], 'draw the curves of a run'),
    overview=(['visualization/overview'], 'show what a model has learned'),
)


def main() -> None:
    """Run the command that is given on the command line."""
    lines = [f'  {name:9} {what}' for name, (_, what) in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        'mmmoca',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='\n'.join(['Commands:', *lines]),
        epilog='Arguments of a command: mmmoca COMMAND --help\n'
        f'Configs (give a name or a path): {shipped("configs")}',
    )
    parser.add_argument('--version', action='version', version=__version__)
    add = parser.add_argument
    add('command', choices=COMMANDS, nargs='?', metavar='COMMAND')
    add('arguments', nargs=argparse.REMAINDER, metavar='...')
    args = parser.parse_args()
    if args.command is None:
        parser.print_help()
    else:
        (tool, *options), _ = COMMANDS[args.command]
        program = shipped(f'tools/{tool}.py')
        sys.argv = [f'mmmoca {args.command}', *options, *args.arguments]
        # Programs import modules from their own folder.
        sys.path[0] = str(program.parent)
        import_module(program.stem).main()


if __name__ == '__main__':
    main()
