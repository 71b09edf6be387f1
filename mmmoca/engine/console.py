# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Filters what the terminal shows of a run. The log file has all of it."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from mmmoca.messages import DataWarning, escape_record

# Messages that start like these describe MMEngine and the machine, not the
# run.
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
_OF_INPUT = ValueError, OSError
# Beginnings of warnings of PyTorch, MMEngine and mmdet.
_WARNINGS = (
    'This DataLoader will create',
    'Setting (OMP|MKL)_NUM_THREADS',
    'torch.utils.checkpoint: the use_reentrant',
    'faster_coco_eval is not',
)


@contextmanager
def without_idle_warnings() -> Iterator[None]:
    """Ignore warnings of what no config can change, and of what is logged."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DataWarning)
        for message in _WARNINGS:
            warnings.filterwarnings('ignore', message)
        yield


def filter_terminal(logger: logging.Logger) -> None:
    """Keep control characters and what is not of the run off a terminal.

    Args:
        logger (logging.Logger): Of a run. Changed in place.
    """
    logger.addFilter(escape_record)
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(_is_of_the_run)


def _is_of_the_run(record: logging.LogRecord) -> bool:
    # The program ends with the message of such an error, in a line.
    of_input = isinstance((record.exc_info or (None, None))[1], _OF_INPUT)
    return not (of_input or record.getMessage().startswith(_DUMPS))
