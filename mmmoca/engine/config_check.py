# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds what makes no sense in a config, whichever classes it builds.

OpenMMLab's classes take most of what they are given, and fail later, or train
on nonsense. Which kinds of values an argument takes is known of the class; its
range is not, but arguments have the same names everywhere, so that one table
of names says what is meant.
"""

import inspect
import math
import os
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from types import NoneType
from typing import Any, NamedTuple

from mmengine.config import Config
from mmengine.runner import Runner

from .config_arguments import arguments_of, takes
from .config_relations import misfits, misfits_of_part

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
    """A value, or sequences of any depth none of whose values is bad."""

    def all_hold(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(map(all_hold, value))
        return holds(value)

    return all_hold


def _flat(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A value, or a sequence of such."""

    def all_hold(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(map(holds, value))
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


def _is_scale(value: Any) -> bool:
    """Sizes for MMCV's transforms; one of a pair may be -1, to be found."""
    if isinstance(value, (list, tuple)) and any(map(_number, value)):
        value = [side for side in value if side != -1]
        return len(value) in (1, 2) and all(map(_is_scale, value))
    return _POSITIVE.holds(value)


_COUNT = _Rule(_whole(1), 'a whole number of 1 or more')
_COUNTS = _Rule(_each(_whole(1)), 'whole numbers of 1 or more')
_NATURAL = _Rule(_whole(0), 'a whole number of 0 or more')
_SHARE = _Rule(
    # RandomFlip takes one for each direction.
    _each(lambda value: _number(value) and 0 <= value <= 1),
    'between 0 and 1',
)
_POSITIVE = _Rule(_each(lambda value: _number(value) and value > 0), 'above 0')
_RATE = _Rule(
    lambda value: _number(value) and 0 <= value <= 1000, 'from 0 to 1000'
)
_PIXELS = _Rule(
    _flat(lambda value: _number(value) and abs(value) <= 65535),
    'values of pixels',
)
_COUNT_OR_NEVER = _Rule(
    lambda value: value == -1 or _whole(1)(value),
    'a whole number of 1 or more, or -1 for never',
)
_NOT_NEGATIVE = _Rule(lambda value: _number(value) and value >= 0, '0 or more')

_RULES = {
    **dict.fromkeys(
        ('batch_size', 'max_epochs', 'max_iters')
        + ('accumulative_counts', 'base_batch_size', 'num_words')
        + ('num_new_words', 'num_classes', 'T_max'),
        _COUNT,
    ),
    **dict.fromkeys(
        ('img_size', 'patch_size', 'depth', 'num_heads', 'embed_dims')
        + ('num_layers', 'feedforward_channels', 'in_channels')
        + ('out_channels', 'channels', 'feat_channels'),
        _COUNTS,
    ),
    **dict.fromkeys(('val_cfg.k', 'test_cfg.k'), _COUNTS),
    'num_workers': _NATURAL,
    **dict.fromkeys(('interval', 'max_keep_ckpts'), _COUNT_OR_NEVER),
    **dict.fromkeys(
        ('prob', 'drop_path_rate', 'drop_rate', 'attn_drop_rate')
        + ('lambda_img', 'layer_decay_rate', 'momentum'),
        _SHARE,
    ),
    'hue': _Rule(
        _each(lambda value: _number(value) and abs(value) <= 0.5),
        'from 0 to 0.5, or two numbers from -0.5 to 0.5',
    ),
    'betas': _Rule(_each(_SHARE.holds), 'between 0 and 1'),
    **dict.fromkeys(
        ('kappa', 'max_norm', 'temperature', 'val_interval', 'crop_size')
        + ('stride', 'strides', 'featmap_strides'),
        _POSITIVE,
    ),
    'scale': _Rule(_is_scale, 'a size, a share, or two of them, above 0'),
    **dict.fromkeys(
        ('lr', 'weight_decay', 'prototype_lr', 'prototype_weight_decay'),
        _RATE,
    ),
    'base_lrs': _Rule(_flat(_RATE.holds), 'numbers from 0 to 1000'),
    'type': _Rule(
        lambda value: isinstance(value, str) or callable(value),
        'the name of a class',
    ),
    **dict.fromkeys(('eta_min', 'warmup'), _NOT_NEGATIVE),
    'data_preprocessor.mean': _PIXELS,
    'data_preprocessor.std': _Rule(
        _flat(lambda value: _number(value) and 0 < value <= 65535),
        'above 0, and no more than pixels can be',
    ),
    'test_cfg.mode': _Rule(
        # The last one is of depth estimation.
        lambda value: value in ('slide', 'whole', 'slide_flip'),
        "'slide' or 'whole'",
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
    """Check a config before anything is built.

    Args:
        cfg (Config): Any config of OpenMMLab's.

    Raises:
        ValueError: Lists all that makes no sense, by its keys.
    """
    settings = cfg.to_dict()
    settings.pop('shorthands', None)  # names of keys
    if problems := list(_problems_of(settings)):
        raise ValueError('; '.join(problems))


def _problems_of(cfg: dict) -> Iterator[str]:
    """What makes no sense in a whole config."""
    known = set(inspect.signature(Runner.__init__).parameters)
    yield from _misspelt(cfg, '', known)
    # A file may have any variables: they are none if the loop has the value.
    loop = cfg.get('train_cfg')
    used = list(loop.values()) if isinstance(loop, dict) else []
    unused = {key: value for key, value in cfg.items() if value not in used}
    yield from _misspelt(unused, '', {'max_iters', 'max_epochs'} - cfg.keys())
    yield from misfits(cfg)
    yield from _problems(cfg, '', cfg.get('default_scope'))


def _problems(part: Any, path: str, scope: str | None) -> Iterator[str]:
    """What makes no sense in a part of a config, and in its parts."""
    items = enumerate(part)
    if isinstance(part, dict):
        items = part.items()
        scope = part.get('_scope_', scope)
        yield from _wrong_arguments(part, path, scope)
        yield from misfits_of_part(part, path)
    for key, value in items:
        inner = f'{path}.{key}' if path else str(key)
        rule = _RULES.get(key) or _RULES.get('.'.join(inner.split('.')[-2:]))
        # Classes have defaults for None, but for the parts of a ViT's arch;
        # a recipe fills in what is 'auto'.
        default = value is None and not path.endswith('.arch')
        if default or isinstance(value, dict) or value == 'auto':
            rule = None
        if rule and not rule.holds(value):
            yield f'{inner}={value!r}: must be {rule.wanted}'
        elif isinstance(value, float) and math.isnan(value):
            yield f'{inner}=nan: must be a number'
        elif isinstance(value, (dict, list, tuple)):
            yield from _problems(value, inner, scope)


def _wrong_arguments(
    part: dict, path: str, scope: str | None
) -> Iterator[str]:
    """Arguments that no class of this name takes."""
    name = path.rpartition('.')[2]
    candidates = arguments_of(name, part, scope)
    if name == 'collate_fn' and 'type' in part and not candidates:
        yield f'{path}.type={part["type"]!r}: must be a registered function'
    known = {'type'}.union(*(arguments for arguments, _ in candidates))
    named = {
        key: value
        for key, value in part.items()
        if candidates or isinstance(value, str)  # as a type is
    }
    yield from _misspelt(named, path, known)
    for key, value in part.items():
        kinds = [(arguments.get(key), own) for arguments, own in candidates]
        ruled = key in _RULES and not isinstance(value, (dict, NoneType))
        if ruled or not kinds or not all(kind for kind, _ in kinds):
            continue
        if not any(takes(kind, value, own) for kind, own in kinds):
            wanted = sorted(set().union(*(kind for kind, _ in kinds)))
            yield f'{path}.{key}={value!r}: must be {" or ".join(wanted)}'


def _misspelt(part: dict, path: str, known: set[str]) -> Iterator[str]:
    """Keys that are one slip away from one that is known."""
    for key in filter(lambda key: key not in known, part):
        for name in sorted(known - part.keys()):
            if _one_slip(str(key), name):
                inner = f'{path}.{key}' if path else key
                yield f'{inner}: there is no such key: did you mean {name}?'


def _one_slip(key: str, name: str) -> bool:
    """Whether a letter is missing, too many, another one, or swapped."""
    same = len(os.path.commonprefix([key, name]))
    rest, wanted = key[same:], name[same:]
    return (
        rest[1:] == wanted
        or rest == wanted[1:]
        or rest[1:] == wanted[1:]
        or rest[1::-1] + rest[2:] == wanted
    )
