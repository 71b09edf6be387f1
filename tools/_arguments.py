# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Arguments that tools share, parsed and checked without PyTorch.

A tool imports at its top only what its command line needs, and the rest in the
functions that do its work. So ``--help`` answers at once, and a wrong argument
or a missing file is reported before anything is built.
"""

import argparse
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

# Environment variable with the path of a file to which a program writes its
# status and its last line (see `_launch`).
LAST_LINE = 'MMMOCA_LAST_LINE'
# When PyTorch passes on an error from a loader's worker, the text begins with
# a traceback. This pattern matches everything before the worker's own message.
_WORKERS = re.compile(r'^Caught .*^[\w.]+(?:Error|Exception): ', re.M | re.S)
_SHOW = warnings.showwarning
_SHOWN: set[str] = set()


def config_file(name: str) -> Path:
    """Parse an argument: a config file, or the name of a config of mmmoca.

    Raises:
        argparse.ArgumentTypeError: If there is no such config (the message
            lists similar names), or if the file is not a config.
    """
    from mmmoca.shipped import find_config

    try:
        return find_config(name)
    except (FileNotFoundError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _existing(what: str, found: Callable[[Path], bool]) -> Callable:
    """Return a parser for an argument that must be an existing path."""

    def check(name: str) -> str:
        path = Path(name).expanduser()
        if not found(path):
            problem = f'there is no {what} {name}'
            if path.is_dir():
                problem = f'{name} is a folder: give a {what} in it'
            raise argparse.ArgumentTypeError(problem)
        return str(path)

    return check


local_file = _existing('file', Path.is_file)
image_folder = _existing('folder', Path.is_dir)
# A name with braces is a pattern of shards, which is expanded later.
image_place = _existing('place', lambda p: p.exists() or '{' in p.name)


def positive_integer(text: str) -> int:
    """Parse an argument: a whole number that is at least 1.

    Raises:
        argparse.ArgumentTypeError: If it is anything else.
    """
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f'{text} must be a whole number, 1 or more'
        )
    return number


def whole_number(text: str) -> int:
    """Parse an argument: a whole number that is at least 0.

    Raises:
        argparse.ArgumentTypeError: If it is anything else.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f'{text} must be a whole number, 0 or more'
        )
    return int(text)


def percentage(text: str) -> float:
    """Parse an argument: a number above 0 and at most 100.

    Raises:
        argparse.ArgumentTypeError: If it is outside this range.
    """
    number = float(text)
    if not 0 < number <= 100:  # refuses NaN, too
        raise argparse.ArgumentTypeError(
            f'{text} must be above 0 and at most 100'
        )
    return number


def _option(text: str) -> str:
    """Parse an argument: a key and its value.

    Raises:
        argparse.ArgumentTypeError: If it is not ``KEY=VALUE``.
    """
    if text.find('=') < 1:
        raise argparse.ArgumentTypeError(f'{text} must be KEY=VALUE')
    return text


def add_cfg_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments --debug and --cfg-options, a list of ``KEY=VALUE``."""
    add_debug(parser)
    options = (
        'settings that override those of the config, such as '
        'optim_wrapper.optimizer.lr=1e-4. Write a list as key="[a,b]", with '
        'quotes and without blanks. If the config has a string other than '
        "'auto' or 'dynamic' there, VALUE is read as a string"
    )
    parser.add_argument(
        '--cfg-options',
        type=_option,
        nargs='+',
        action='extend',
        default=[],
        metavar='KEY=VALUE',
        help=options,
    )


def add_encoder_choice(parser: argparse.ArgumentParser, size: str) -> None:
    """Add --which, --weights, --source-grid and --img-size.

    ``size`` is the help text of --img-size.
    """
    which = (
        'which encoder to use if the file has both (by default the teacher)'
    )
    encoders = ['teacher', 'student']
    parser.add_argument(
        '--which', choices=encoders, default='teacher', help=which
    )
    weights = 'which weights to use if the file also has averaged ones (EMA)'
    kinds = ['raw', 'averaged']
    parser.add_argument('--weights', choices=kinds, help=weights)
    pair = dict(nargs=2, type=positive_integer, metavar=('H', 'W'))
    grid = (
        'patch rows and columns that the positions in the file are for (by '
        'default as recorded; if nothing is recorded, a square)'
    )
    parser.add_argument('--source-grid', **pair, help=grid)
    parser.add_argument('--img-size', **pair, help=size)


def add_encoder_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --debug and the arguments that choose and describe an encoder."""
    add_debug(parser)
    size = 'height and width of the images in pixels (default: as in training)'
    add_encoder_choice(parser, size)
    add = parser.add_argument
    heads = 'number of attention heads, if the file does not record it'
    add('--num-heads', type=positive_integer, metavar='N', help=heads)
    channels = (
        'one number for each channel (by default the recorded ones, otherwise '
        'those of ImageNet)'
    )
    for name in ('--mean', '--std'):
        add(name, type=float, nargs='+', metavar='X', help=channels)


def encoder_arguments(args: argparse.Namespace) -> dict[str, object]:
    """Return the values of the arguments that choose an encoder."""
    names = 'which', 'weights', 'source_grid', 'img_size', 'num_heads'
    return {name: getattr(args, name) for name in (*names, 'mean', 'std')}


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that training and testing share."""
    add = parser.add_argument
    config = "a config file, or the name of one of mmmoca's configs"
    add('config', type=config_file, help=config)
    work_dir = 'where logs and checkpoints go (by default work_dirs/CONFIG)'
    add('--work-dir', help=work_dir)
    add_cfg_options(parser)
    launchers = ['none', 'pytorch', 'slurm', 'mpi']
    started = 'the launcher that started the processes'
    add('--launcher', choices=launchers, default='none', help=started)
    # torch.distributed.launch passes this argument. It is not used, since
    # LOCAL_RANK is set as well.
    add('--local_rank', '--local-rank', help=argparse.SUPPRESS)


def add_debug(parser: argparse.ArgumentParser) -> None:
    """Add the argument --debug, which :func:`run_program` looks for."""
    text = 'show the traceback of an error'
    parser.add_argument('--debug', action='store_true', help=text)


def import_stack() -> None:
    """Check the installation, then import OpenMMLab without its messages.

    Raises:
        ImportError: If a package is missing or too old.
    """
    import mmmoca.import_mmpretrain  # noqa: F401


def _is_stop(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error.

    MMEngine may raise another error in place of KeyboardInterrupt.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def run_program(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> None:
    """Run a program; print an error as one line unless --debug is given.

    Once a run has begun, its log also contains the traceback of an error.
    Ctrl-C ends the program with status 130 and one line.

    Args:
        parser (argparse.ArgumentParser): Parser of the command line.
        work (Callable[[argparse.Namespace], None]): Does the program's work
            with the arguments. It should check them before it imports modules
            that load PyTorch.
        argv (Sequence[str], optional): The arguments. Defaults to those of
            the process.
    """
    if '--debug' not in parser._option_string_actions:
        add_debug(parser)
    warnings.showwarning = _show
    try:
        work(parser.parse_args(argv))
    except (Exception, KeyboardInterrupt) as error:
        if '--debug' in sys.argv:
            raise
        if _is_stop(error):
            _end(parser, 130, 'stopped')
        # The text of an error in a loader's worker begins with a traceback.
        *_, text = _WORKERS.split(f'{error}')
        message = ' '.join(text.split()) or _where(error)
        # The error of a diverged run has its own status.
        status = getattr(error, 'exit_status', 2)
        _end(parser, status, f'error: {message}')
    except SystemExit as end:
        if end.code == os.EX_TEMPFAIL and LAST_LINE in os.environ:
            _end(parser, end.code, 'stopped: continue with --resume')
        raise


def _show(
    message: Warning, category: type[Warning], *place, **options
) -> None:
    """Print a warning; for one about the user's data, omit the code line."""
    from mmmoca.messages import DataWarning

    if not issubclass(category, DataWarning):
        _SHOW(message, category, *place, **options)
    # Python forgets which warnings it has shown whenever a library changes
    # the warning filters. So this program remembers them itself.
    elif str(message) not in _SHOWN:
        _SHOWN.add(str(message))
        print(f'warning: {message}', file=sys.stderr)


def _where(error: BaseException) -> str:
    """Describe an error that has no message by the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f'{Path(frame.filename).name}:{frame.lineno}'
    return f'{type(error).__name__} in {place}: {frame.line}'


def _end(parser: argparse.ArgumentParser, status: int, message: str) -> None:
    """End a program with a last line, which :mod:`_launch` may print."""
    line = f'{parser.prog}: {message}\n'
    if file := os.environ.get(LAST_LINE):
        # Only the first process that fails writes its line, which names the
        # cause. The other processes then fail because they have lost their
        # connection to it.
        with suppress(FileExistsError), open(file, 'x') as last:
            last.write(f'{status} {line}')
        sys.exit(status)
    parser.exit(status, line)
