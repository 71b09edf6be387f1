# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds slips in a config before anything is built.

OpenMMLab's classes take most of what they are given, and fail later, or train
on nonsense. What this package's own classes take they check themselves.
"""

import inspect
import itertools
import math
import os
import re
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

__all__ = ['RUN_KEYS', 'check_config']


class _Range(NamedTuple):
    """Numbers that an argument takes."""

    low: float
    high: float = 1e12
    whole: bool = False

    def holds(self, value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return all(map(self.holds, value))
        kind = Integral if self.whole else Real
        number = isinstance(value, kind) and not isinstance(value, bool)
        return number and self.low <= value <= self.high


# Arguments have the same names in all packages. Many take sequences, too.
_RANGES = {
    'batch_size max_epochs max_iters accumulative_counts base_batch_size '
    'num_classes T_max img_size patch_size depth num_heads embed_dims '
    'num_layers in_channels out_channels channels': _Range(1, whole=True),
    'num_workers': _Range(0, whole=True),
    'interval max_keep_ckpts': _Range(-1),  # -1 for never
    'prob drop_path_rate drop_rate attn_drop_rate layer_decay_rate momentum '
    'betas crop_ratio_range': _Range(0, 1),
    'hue': _Range(-0.5, 0.5),
    'max_norm val_interval crop_size stride strides': _Range(1e-9),
    'std': _Range(1e-9, 65535),
    'lr base_lrs weight_decay': _Range(0, 1000),
    'eta_min warmup': _Range(0),
}
_RANGES = {name: r for names, r in _RANGES.items() for name in names.split()}
_PARTS = re.compile(
    r'model|optim_wrapper|default_hooks(\.\w+)?|log_processor|randomness|'
    r'auto_scale_lr|(train|val|test)_(cfg|dataloader)|env_cfg'
)
# What a run reads of a config, beside the config's own shorthands.
RUN_KEYS = {
    *inspect.signature(Runner).parameters,
    *('activation_checkpointing', 'compile', 'find_unused_parameters'),
    'runner_type',
}


def check_config(cfg: Config) -> None:
    """Check a config before anything is built.

    A key that is a slip away from an argument is refused by the class that
    is built: here, keys that no class sees.

    Args:
        cfg (Config): Any config of OpenMMLab's.

    Raises:
        ValueError: Lists all that makes no sense, by its keys.
    """
    settings = cfg.to_dict()
    known = RUN_KEYS | (settings.pop('shorthands', None) or {}).keys()
    problems = [
        f'{key}: there is no such key: did you mean {name}?'
        for key in settings.keys() - known
        for name in known
        if _one_slip(key, name)
    ]
    problems += _problems(settings, '')
    problems = problems or list(_silent_faults(settings))
    if problems:
        raise ValueError('; '.join(problems))


def _problems(part: dict | list | tuple, path: str) -> Iterator[str]:
    """What makes no sense in a part of a config, and in its parts."""
    if path and isinstance(part, dict):
        for key, name in _slips(part):
            yield f'{path}{key}: there is no such key: did you mean {name}?'
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        inner = f'{path}{key}'
        is_part = isinstance(value, (dict, Hook, type(None)))
        # A recipe fills in what is 'auto'.
        rule = _RANGES.get(None if is_part or value == 'auto' else key)
        if _PARTS.fullmatch(inner) and not is_part:
            yield f'{inner}={value!r}: must be a dict'
        elif rule and not rule.holds(value):
            kind = 'whole number' if rule.whole else 'number'
            yield (
                f'{inner}={value!r}: must be a {kind} from {rule.low:g} to '
                f'{rule.high:g}'
            )
        elif isinstance(value, float) and math.isnan(value):
            yield f'{inner}=nan: must be a number'
        elif isinstance(value, (dict, list, tuple)):
            yield from _problems(value, f'{inner}.')


def _slips(part: dict) -> Iterator[tuple[str, str]]:
    """Keys that are a slip away from the one that they stand behind."""
    # As in a file that inherits the right one.
    keys = [key for key in part if isinstance(key, str) and key != 'type']
    for name, slip in itertools.combinations(keys, 2):
        if _one_slip(slip, name) and not _alike(slip, name):
            yield slip, name


def _alike(key: str, name: str) -> bool:
    """Whether a user may have named two things so, `view1` and `view2`."""
    replaced = len(key) == len(name) and sorted(key) != sorted(name)
    numbered = re.sub(r'\d', '', key) == re.sub(r'\d', '', name)
    return replaced or numbered or min(len(key), len(name)) < 4


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


def _silent_faults(cfg: dict) -> Iterator[str]:
    """What would train on nonsense, or fail after hours."""
    loader, model = cfg.get('train_dataloader'), cfg.get('model') or {}
    loop, schedules = cfg.get('train_cfg') or {}, cfg.get('param_scheduler')
    by_iteration = str(loop.get('type')).endswith('IterBasedTrainLoop')
    for schedule in schedules if isinstance(schedules, list) else [schedules]:
        whole = isinstance(schedule, dict) and 'end' not in schedule
        if by_iteration and whole and schedule.get('by_epoch', True):
            yield (
                'param_scheduler.by_epoch: must be False for train_cfg.type='
                'IterBasedTrainLoop, or the schedule ends after one epoch'
            )
    name = 'data_preprocessor'
    given = cfg.get(name) is not None or model.get(name) is not None
    if loader and model and not given and 'Normalize' not in str(loader):
        yield (
            'model.data_preprocessor: must be there, with type, mean and std '
            '(dict() for pixels from 0 to 255)'
        )
    mode = (model.get('test_cfg') or {}).get('mode', 'whole')
    if mode not in ('whole', 'slide'):
        yield f'model.test_cfg.mode={mode!r}: must be whole or slide'
