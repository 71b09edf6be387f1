# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks that two sets of images have the same classes."""

from collections.abc import Sequence
from itertools import zip_longest

from mmmoca.messages import listed


def check_same_classes(
    names: Sequence[str], others: Sequence[str], roles: tuple[str, str]
) -> None:
    """Raise if equal labels mean different classes in two sets of images.

    Args:
        names (Sequence[str]): Class names of the first set; empty if its
            classes have no names.
        others (Sequence[str]): Class names of the second set, or empty.
        roles (tuple[str, str]): What the two sets are for, such as
            'train' and 'val'. The message uses these names.

    Raises:
        ValueError: If both sets have class names, and the names or their order
            differ.
    """
    if names and others and tuple(names) != tuple(others):
        pairs = (names, others, roles), (others, names, roles[::-1])
        problems = [
            f'the {role} images lack the classes {listed(missing)} of the '
            f'{other} images'
            for known, lacking, (other, role) in pairs
            if (missing := [name for name in known if name not in lacking])
        ]
        for number, (one, two) in enumerate(zip_longest(names, others)):
            if not problems and one != two:
                problems.append(
                    f'class {number} is {one!r} in the {roles[0]} images, but '
                    f'{two!r} in the {roles[1]} images'
                )
        raise ValueError(
            f'{"; ".join(problems)}. If folders are the classes, create '
            'the same folders for both sets (empty ones for absent classes). '
            'Otherwise set the same metainfo.classes for both'
        )
