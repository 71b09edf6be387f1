# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds slips in a config before anything is built.

OpenMMLab's classes take most of what they are given, and fail later, or train
on nonsense. What this package's own classes take they check themselves.
"""

import functools
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

from mmengine import registry as registries
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import Registry
from mmengine.runner import Runner
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from mmmoca.registry import HOOKS

__all__ = ['ConfigCheckHook', 'check_config']


class _Range(NamedTuple):
    """Numbers that an argument takes, and how to say it."""

    wanted: str
    low: float
    high: float = sys.float_info.max
    kind: type = Real
    several: bool = False  # or sequences of them, of any depth
    also: tuple = ()

    def holds(self, value: Any) -> bool:
        if self.several and isinstance(value, (list, tuple)):
            return len(value) > 0 and all(map(self.holds, value))
        return value in self.also or (
            isinstance(value, self.kind)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
        )


_TINY = math.ulp(0.0)
_COUNT = _Range('a whole number of 1 or more', 1, kind=Integral)
_SIZE = _Range('above 0', _TINY, several=True)
_RATE = _Range('from 0 to 1000', 0, 1000)
_RANGES = {
    'batch_size max_epochs max_iters accumulative_counts base_batch_size '
    'num_classes T_max': _COUNT,
    'img_size patch_size depth num_heads embed_dims num_layers in_channels '
    'out_channels channels feat_channels feedforward_channels': (
        _COUNT._replace(several=True)
    ),
    'interval max_keep_ckpts': _COUNT._replace(
        wanted='1 or more, or -1 for never', also=(-1,)
    ),
    'num_workers': _Range('a whole number of 0 or more', 0, kind=Integral),
    'prob drop_path_rate drop_rate attn_drop_rate layer_decay_rate momentum '
    'betas crop_ratio_range': _Range('between 0 and 1', 0, 1, several=True),
    'hue': _Range('from -0.5 to 0.5', -0.5, 0.5, several=True),
    'max_norm val_interval crop_size stride strides featmap_strides': _SIZE,
    'scale': _SIZE._replace(also=(-1,)),
    'lr weight_decay': _RATE,
    'base_lrs': _RATE._replace(several=True),
    'eta_min warmup': _Range('0 or more', 0),
    'std': _SIZE._replace(high=65535),
}
# Arguments have the same names everywhere.
_RANGES = {name: r for names, r in _RANGES.items() for name in names.split()}
_PARTS = re.compile(
    r'model|optim_wrapper|default_hooks|log_processor|randomness|'
    r'auto_scale_lr|(train|val|test)_(cfg|dataloader)|env_cfg'
)
_REGISTRIES = [
    entry for entry in vars(registries).values() if isinstance(entry, Registry)
]


@HOOKS.register_module()
class ConfigCheckHook(Hook):
    """Checks the config of runners that other tools than ours have built.

    Raises:
        ValueError: See :func:`check_config`.
    """

    # Before the hooks that look at data and weights.
    priority = 'HIGHEST'

    def before_run(self, runner: Runner) -> None:
        """Check the config that the runner was built from, if any."""
        check_config(runner.cfg)


def check_config(cfg: Config) -> None:
    """Check a config before anything is built.

    Args:
        cfg (Config): Any config of OpenMMLab's.

    Raises:
        ValueError: Lists all that makes no sense, by its keys.
    """
    settings = cfg.to_dict()
    settings.pop('shorthands', None)  # names of keys
    problems = list(_wrong_kinds(settings))
    if not problems:
        problems += _problems(settings, '', settings.get('default_scope'))
        problems += _relations(settings)
    if problems:
        raise ValueError('; '.join(problems))


def _wrong_kinds(cfg: dict) -> Iterator[str]:
    """Parts of a config that are no dicts."""
    parts = {k: part for k, part in cfg.items() if _PARTS.fullmatch(k)}
    hooks = cfg.get('default_hooks')
    for key, hook in hooks.items() if isinstance(hooks, dict) else ():
        parts[f'default_hooks.{key}'] = hook
    for key, part in parts.items():
        if not isinstance(part, (dict, Hook, type(None))):
            yield f'{key}={part!r}: must be a dict'


def _problems(part: Any, path: str, scope: str | None) -> Iterator[str]:
    """What makes no sense in a part of a config, and in its parts."""
    items = enumerate(part)
    if isinstance(part, dict):
        items = part.items()
        scope = part.get('_scope_', scope)
        yield from _slips(part, path, scope)
        size, patch = part.get('img_size'), part.get('patch_size')
        sizes = size if isinstance(size, (list, tuple)) else [size]
        numbers = all(isinstance(n, int) and n > 0 for n in (patch, *sizes))
        # Where maps are resized, the grid of positions may be of any size.
        fits = 'out_indices' in part or not numbers
        if not fits and any(n % patch for n in sizes):
            yield f'{path}.patch_size={patch}: must divide img_size={size}'
    for key, value in items:
        inner = f'{path}.{key}' if path else str(key)
        rule = _RANGES.get(key)
        # Classes have defaults for None, but for the parts of a ViT's arch;
        # a recipe fills in what is 'auto'.
        default = value is None and not path.endswith('.arch')
        if default or isinstance(value, dict) or value == 'auto':
            rule = None
        if rule and not rule.holds(value):
            yield f'{inner}={value!r}: must be {rule.wanted}'
        elif isinstance(value, float) and math.isnan(value):
            yield f'{inner}=nan: must be a number'
        elif key == 'type' and not (isinstance(value, str) or callable(value)):
            yield f'{inner}={value!r}: must be the name of a class'
        elif isinstance(value, (dict, list, tuple)):
            yield from _problems(value, inner, scope)


def _slips(part: dict, path: str, scope: str | None) -> Iterator[str]:
    """Keys that are one slip away from another one that is known."""
    known = _arguments(part, path, scope)
    anything = known == {'type'}
    before = []
    for key, value in part.items():
        if key in known or not isinstance(key, str):
            continue
        meant = [
            name
            for name in sorted(known)
            if _one_slip(key, name)
            and (isinstance(value, str) or not anything)  # as a type is
        ]
        if anything and path:
            # A slip in a file that inherits stands behind the right key.
            meant += [name for name in before if _letters_differ(key, name)]
            before.append(key)
        if meant:
            inner = f'{path}.{key}' if path else key
            yield f'{inner}: there is no such key: did you mean {meant[0]}?'


def _arguments(part: dict, path: str, scope: str | None) -> set[str]:
    """Names of the arguments of whatever a dict is built into."""
    kind, name = part.get('type'), path.rpartition('.')[2]
    if isinstance(kind, str):
        found = _registered(kind, scope)
    elif callable(kind):
        found = (kind,)
    elif name == 'clip_grad':
        found = (clip_grad_norm_,)
    elif name.endswith('dataloader'):
        found = (DataLoader,)
    else:
        found = ()
    known = {'type'}.union(*map(_parameters, found))
    if path:
        return known
    # A file may have any variables: they are none if the loop has the value.
    used = list((part.get('train_cfg') or {}).values())
    variables = {key for key, value in part.items() if value in used}
    known |= _parameters(Runner) | {'max_iters', 'max_epochs'}
    return known | variables


@functools.cache
def _registered(name: str, scope: str | None) -> tuple[Callable, ...]:
    """Whatever has this name in the registries of a scope."""
    names = [name]
    if '.' not in name:
        names = [f'{place}.{name}' for place in (scope, 'mmengine') if place]
    found = (
        next(filter(None, map(registry.get, names)), None)
        for registry in _REGISTRIES
    )
    return tuple(filter(callable, found))


@functools.cache
def _parameters(function: Callable) -> set[str]:
    """Names that a function takes, or a class and its bases."""
    owners = inspect.getmro(function)[:-1] if inspect.isclass(function) else ()
    names = set()
    for owner in owners or (function,):
        try:
            names |= inspect.signature(owner).parameters.keys()
        except (TypeError, ValueError):  # of a compiled module
            continue
    return names


def _letters_differ(key: str, name: str) -> bool:
    """Whether one slip makes two names of a user's own, which may be like."""
    # As are `view1` and `view2`, `loss_x` and `loss_y`.
    swapped = len(key) == len(name) and sorted(key) == sorted(name)
    grown = len(key) != len(name) and min(len(key), len(name)) > 3
    digits = re.sub(r'\d', '', key) == re.sub(r'\d', '', name)
    return (swapped or grown) and not digits and _one_slip(key, name)


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


def _relations(cfg: dict) -> Iterator[str]:
    """What a config lacks without any class saying so."""
    loader, model = cfg.get('train_dataloader'), cfg.get('model')
    if loader and loader.get('dataset') is None:
        yield 'train_dataloader.dataset: must be there'
    loop, schedules = cfg.get('train_cfg') or {}, cfg.get('param_scheduler')
    by_iteration = str(loop.get('type')).endswith('IterBasedTrainLoop')
    for schedule in schedules if isinstance(schedules, list) else [schedules]:
        whole = isinstance(schedule, dict) and 'end' not in schedule
        if by_iteration and whole and schedule.get('by_epoch', True):
            yield (
                'param_scheduler.by_epoch: must be False for train_cfg.type='
                'IterBasedTrainLoop, or the schedule ends after the first '
                'epoch (convert_to_iter_based goes with it)'
            )
    name, scope = 'data_preprocessor', cfg.get('default_scope')
    takes = model and name in _arguments(model, 'model', scope)
    given = any((part or {}).get(name) is not None for part in (cfg, model))
    if loader and takes and not given and 'Normalize' not in str(loader):
        yield (
            'model.data_preprocessor: must be there, or the network sees '
            'pixels from 0 to 255: write its type, mean and std, or dict() '
            'if that is meant'
        )
