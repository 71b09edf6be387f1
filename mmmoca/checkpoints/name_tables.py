# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names of parameters here and in another library, in both directions."""

import re

__all__ = ['NameTable']


class NameTable:
    """Names of mmpretrain's ViT beside those of another library.

    Args:
        *rows (Tuple[str, ...]): The beginning of a name in mmpretrain, that
            in the other library, and other spellings that are read there,
            ``#`` for the number of a layer. The first row that fits counts;
            a beginning ends at a dot.
    """

    def __init__(self, *rows: tuple[str, ...]) -> None:
        self._to = [
            (_pattern(theirs), _replacement(ours))
            for ours, *spellings in rows
            for theirs in spellings
        ]
        self._back = [
            (_pattern(ours), _replacement(theirs)) for ours, theirs, *_ in rows
        ]

    def to_mmpretrain(self, name: str) -> str:
        """Turn a name of theirs into mmpretrain's; others pass as they are."""
        return _first(self._to, name)

    def from_mmpretrain(self, name: str) -> str:
        """Turn a name of mmpretrain into theirs; others pass as they are."""
        return _first(self._back, name)


def _pattern(beginning: str) -> re.Pattern:
    text = re.escape(beginning).replace(r'\#', r'(\d+)')
    return re.compile(rf'{text}(?=\.|$)')


def _replacement(beginning: str) -> str:
    return beginning.replace('#', r'\1')


def _first(rows: list[tuple[re.Pattern, str]], name: str) -> str:
    for pattern, replacement in rows:
        if pattern.match(name):
            return pattern.sub(replacement, name, count=1)
    return name
