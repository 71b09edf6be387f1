# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Escapes untrusted names in messages, and issues warnings."""

import logging
import sys
import warnings
from collections.abc import Iterable

_LIBRARIES = ['mmmoca', 'mmengine', 'mmpretrain', 'mmseg', 'mmdet', 'torch']


class DataWarning(UserWarning):
    """A warning about data that stand out. A run logs a line instead."""


def warn(text: str, category: type[Warning] = DataWarning) -> None:
    """Warn, and point at the line of user code that called this package.

    Args:
        text (str): The warning.
        category (type[Warning]): Its class. Defaults to
            :class:`DataWarning`.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back and _is_library(frame.f_globals['__name__']):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def _is_library(module: str) -> bool:
    """Return whether a module belongs to this package or its libraries."""
    return module.partition('.')[0] in _LIBRARIES


def printable(text: object) -> str:
    """Escape control characters, which a terminal would obey.

    Args:
        text (object): A text, such as a file name.

    Returns:
        str: One line, with Python's escapes for unprintable characters.
    """
    return ''.join(
        letter
        if letter.isprintable()
        else letter.encode('unicode_escape').decode()
        for letter in str(text)
    )


def listed(names: Iterable[object], limit: int = 5) -> str:
    """List the first names and count the others.

    Args:
        names (Iterable[object]): The names, in order.
        limit (int): Number of names to write out. Defaults to 5.

    Returns:
        str: For example ``a, b and 7 more``. Names are escaped by
        :func:`printable`.
    """
    names = list(names)
    rest = len(names) - limit
    more = f' and {rest} more' if rest > 0 else ''
    return ', '.join(map(printable, names[:limit])) + more


def escape_record(record: logging.LogRecord) -> bool:
    """Escape the control characters in a log record.

    This is a filter for loggers.

    Args:
        record (logging.LogRecord): The record, changed in place. Its line
            breaks are kept.

    Returns:
        bool: True, so that the logger keeps the record.
    """
    lines = record.getMessage().expandtabs().split('\n')
    record.msg, record.args = '\n'.join(map(printable, lines)), None
    return True
