# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Filters what the terminal shows of a run. The log file has everything."""

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmmoca.messages import DataWarning, escape_record

# Beginnings of messages that only the log file gets: long listings, and notes
# on MMEngine and the machine.
_DUMPS = (
    '\n------',
    'Config:',
    'Data:',
    'Hooks will be executed',
    'Exp name:',
    'Distributed training is not used',
    '"FileClient"',
    '"HardDiskBackend"',
    'The prefix is not set in metric class',
)
FAILED = 'the run has failed'
_PACKAGE = Path(__file__).parents[1]
# Beginnings of warnings of PyTorch, MMEngine and mmdet.
_WARNINGS = (
    'This DataLoader will create',
    'Setting (OMP|MKL)_NUM_THREADS',
    'torch.utils.checkpoint: the use_reentrant',
    'faster_coco_eval is not',
)


@contextmanager
def without_idle_warnings() -> Iterator[None]:
    """Ignore warnings that no config can avoid or that are also logged."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DataWarning)
        for message in _WARNINGS:
            warnings.filterwarnings('ignore', message)
        yield


def filter_terminal(logger: logging.Logger) -> None:
    """Escape control characters; show only the run's messages on a terminal.

    A log file still gets all messages.

    Args:
        logger (logging.Logger): Logger of a run. Changed in place.
    """
    logger.addFilter(escape_record)
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(_is_of_the_run)


def _is_of_the_run(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    # The program prints the message of one of our own errors in one line, so
    # the terminal need not show the traceback.
    known = text == FAILED and _is_ours((record.exc_info or (None, None))[1])
    return not (known or text.startswith(_DUMPS))


def _is_ours(error: BaseException | None) -> bool:
    """Return whether this package raised an error with advice for users."""
    if not isinstance(error, ValueError | OSError):
        return False
    (frame,) = traceback.extract_tb(error.__traceback__, -1)
    return Path(frame.filename).is_relative_to(_PACKAGE)
