# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a number of a config must be, whichever class takes it.

OpenMMLab's classes take most of what they are given, and fail later, or train
on nonsense. Their arguments have the same names everywhere, so that one table
of names says what is meant.
"""

import math
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

from mmengine.config import Config

__all__ = ['check_config']


class _Rule(NamedTuple):
    """Which values are good, and how to say it."""

    holds: Callable[[Any], bool]
    wanted: str


def _number(value: Any) -> bool:
    return (
        isinstance(value, Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _whole(low: int) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, Integral)
        and not isinstance(value, bool)
        and value >= low
    )


def _each(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A value, or a sequence none of whose values is bad."""

    def all_hold(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(map(all_hold, value))
        return holds(value)

    return all_hold


def _range(low: float, high: float) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        pair = isinstance(value, (list, tuple)) and len(value) == 2
        return (
            pair
            and all(map(_number, value))
            and low <= value[0] <= value[1] <= high
        )

    return holds


_COUNT = _Rule(_whole(1), 'a whole number of 1 or more')
_COUNTS = _Rule(_each(_whole(1)), 'whole numbers of 1 or more')
_NATURAL = _Rule(_whole(0), 'a whole number of 0 or more')
_SHARE = _Rule(
    # RandomFlip takes one for each direction.
    _each(lambda value: _number(value) and 0 <= value <= 1),
    'between 0 and 1',
)
_POSITIVE = _Rule(_each(lambda value: _number(value) and value > 0), 'above 0')
_NOT_NEGATIVE = _Rule(lambda value: _number(value) and value >= 0, '0 or more')

_RULES = {
    **dict.fromkeys(
        ('batch_size', 'max_epochs', 'max_iters')
        + ('accumulative_counts', 'base_batch_size', 'num_words')
        + ('num_new_words', 'num_classes', 'T_max'),
        _COUNT,
    ),
    **dict.fromkeys(('img_size', 'patch_size', 'depth', 'num_heads'), _COUNTS),
    'num_workers': _NATURAL,
    **dict.fromkeys(
        ('prob', 'drop_path_rate', 'drop_rate', 'attn_drop_rate')
        + ('lambda_img', 'layer_decay_rate'),
        _SHARE,
    ),
    **dict.fromkeys(
        ('kappa', 'max_norm', 'temperature', 'val_interval', 'crop_size'),
        _POSITIVE,
    ),
    **dict.fromkeys(
        ('lr', 'weight_decay', 'eta_min', 'warmup', 'prototype_lr')
        + ('prototype_weight_decay',),
        _NOT_NEGATIVE,
    ),
    'crop_ratio_range': _Rule(
        lambda value: _range(0, 1)(value) and value[1] > 0,
        'two shares of the area, the smaller one first',
    ),
    'magnitude_range': _Rule(
        _range(-math.inf, math.inf), 'two numbers, the smaller one first'
    ),
}


def check_config(cfg: Config) -> None:
    """Check the numbers of a config before anything is built.

    Args:
        cfg (Config): Any config of OpenMMLab's.

    Raises:
        ValueError: Lists all numbers that make no sense, by their keys.
    """
    settings = cfg.to_dict()
    settings.pop('shorthands', None)  # names of keys
    problems = [
        f'{path}={value!r}: must be {rule.wanted}'
        for path, value, rule in _ruled(settings, '')
        if value != 'auto' and not rule.holds(value)
    ]
    if problems:
        raise ValueError('; '.join(problems))


def _ruled(part: Any, path: str) -> Iterator[tuple[str, Any, _Rule]]:
    """Values of a part of a config that a rule speaks of."""
    items = ()
    if isinstance(part, dict):
        items = part.items()
    elif isinstance(part, (list, tuple)):
        items = enumerate(part)
    for key, value in items:
        inner = f'{path}.{key}' if path else str(key)
        rule = _RULES.get(key)
        if rule and value is not None and not isinstance(value, dict):
            yield inner, value, rule
        yield from _ruled(value, inner)
