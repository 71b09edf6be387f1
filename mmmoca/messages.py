# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names that others chose, in messages."""

from collections.abc import Iterable

__all__ = ['listed', 'printable']


def printable(text: object) -> str:
    """A text whose control characters are seen, not obeyed by a terminal.

    Args:
        text (object): Such as the name of a file.

    Returns:
        str: One line. What cannot be printed is written as in Python.
    """
    return ''.join(
        letter
        if letter.isprintable()
        else letter.encode('unicode_escape').decode()
        for letter in str(text)
    )


def listed(names: Iterable[object], limit: int = 5) -> str:
    """The first names, and how many there are beside them.

    Args:
        names (Iterable[object]): Names, listed in the order given.
        limit (int): How many to write out. Defaults to 5.

    Returns:
        str: For example ``a, b and 7 more``; see :func:`printable`.
    """
    names = list(names)
    rest = len(names) - limit
    more = f' and {rest} more' if rest > 0 else ''
    return ', '.join(map(printable, names[:limit])) + more
