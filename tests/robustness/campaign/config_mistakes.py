# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Mistakes that people make in configs: named ones, and any number drawn."""

import copy
import random
import re
from collections.abc import Iterator
from math import inf, nan
from typing import Any, NamedTuple

__all__ = ['Mistake', 'drawn', 'named']

REMOVED = '(removed)'
# What training reads of a file; the rest are variables, or for a test.
READ = (
    'model',
    'train_dataloader',
    'val_dataloader',
    'train_cfg',
    'val_cfg',
    'val_evaluator',
    'optim_wrapper',
    'param_scheduler',
    'default_hooks',
    'randomness',
    'auto_scale_lr',
)
NUMBERS = (0, -1, nan, inf, 1e9)
OTHERS = ('3x', True, None, [2, 3, 4], {})
KINDS = ('number', 'kind', 'swap', 'key', 'removed', 'type')
REQUIRED = (
    r'model\.data_preprocessor',
    r'train_dataloader\.dataset\.pipeline\.0',
    r'default_hooks\.(codebook|teacher_ema)',
)
# Mistakes that are none, by what they look like, and why.
HARMLESS = {
    r'optimizer\.lr=0': 'a control that learns nothing',
    r'custom_hooks=\[\]': 'the hooks are default_hooks',
    r'out_indices=\[-1\]': 'one map for all strides, as in ViTDet',
    r'default_hooks\.\w+ spelt .*': 'a hook may have any name',
    r'.*\b(prob|weight_decay|\w+_mult)=0': 'switches something off',
    r'.*\.\d+=True': 'counts as 1',
    r'period=1000000000\.0': 'no decay after the warm-up',
    r'val_interval=1000000000\.0': 'no validation',
    r'checkpoint\.interval=-1': 'no checkpoints',
    r'mask_thr_binary=0': 'a threshold like others',
    r'needs_checkpoint=None': 'counts as False',
    r'.*betas=\(0\.999, 0\.9\)': 'works, if unusual',
    r'(?!' + '|'.join(REQUIRED) + r').* removed': 'may be left out',
}


class Mistake(NamedTuple):
    """Something wrong in a config.

    Attributes:
        path (tuple): Keys and places that lead to it.
        value (Any): What stands there; :data:`REMOVED` means nothing.
        key (str, optional): What stands for the last key instead.
    """

    path: tuple
    value: Any = REMOVED
    key: str | None = None

    def __str__(self) -> str:
        """The dotted key, and what is wrong with it."""
        path = '.'.join(map(str, self.path))
        if self.key:
            return f'{path} spelt {self.key}'
        if self.value is REMOVED:
            return f'{path} removed'
        return f'{path}={self.value!r}'

    @property
    def of_validation(self) -> bool:
        """Whether training would not notice."""
        return self.path[0].startswith('val') or 'test_cfg' in self.path

    @property
    def harmless(self) -> str:
        """Why a run may go on, empty if it must not."""
        found = (
            why
            for pattern, why in HARMLESS.items()
            if re.search(f'(^|\\.){pattern}$', str(self))
        )
        return next(found, '')

    @property
    def names(self) -> set[str]:
        """What an error has to name, one of them."""
        names = {[key for key in self.path if isinstance(key, str)][-1]}
        names |= {self.key} if self.key else set()
        if isinstance(self.value, str):
            names.add(self.value)
        # Messages for people say 'mask ratio' of mask_ratios.
        return names | {name.replace('_', ' ').rstrip('s') for name in names}

    def make(self, cfg: dict) -> dict:
        """A copy of a config with the mistake."""
        cfg = copy.deepcopy(cfg)
        *path, last = self.path
        part = _at(cfg, path)
        if self.key:
            part[self.key] = part.pop(last)
        elif self.value is not REMOVED:
            part[last] = self.value
        elif isinstance(part, list) or last in part:
            del part[last]
        return cfg


VIEW = 'train_dataloader.dataset.pipeline.2.transforms.0'
PRETRAINING = {
    'optim_wrapper.accumulative_counts': [1.5],
    'model.head.kappa': [0, -3],
    'model.neck.depth': [0, -1],
    'optim_wrapper.optimizer.lr': [0, 1e9],
    'optim_wrapper.clip_grad.max_norm': [-1, 0],
    'optim_wrapper.paramwise_cfg.prototype_lr': [-1],
    'train_cfg.max_iters': [0, -5],
    f'{VIEW}.0.crop_ratio_range': [(0, 0)],
    f'{VIEW}.2.magnitude_range': [(2, 0.1)],
    f'{VIEW}.3.prob': [1.5],
    'model.data_preprocessor': [REMOVED],
    'train_dataloader.dataset.pipeline.0': [REMOVED],
    'default_hooks.checkpoint.interval': [0],
    'max_itres': [100],
    'default_hooks.codebook': [REMOVED, None],
    'default_hooks.teacher_ema': [REMOVED],
    'custom_hooks': [[], [dict(type='mmmoca.CodebookHook')]],
}
NAMED = {
    'pretraining': PRETRAINING,
    'linear probing': {
        'param_scheduler.T_max': [0],
        'model.data_preprocessor': [REMOVED],
    },
    'fine-tuning': {
        'model.backbone.patch_size': [7],
        'model.backbone.drop_path_rate': [2],
        'model.data_preprocessor': [REMOVED],
        'train_dataloader.dataset.pipeline.0': [REMOVED],
    },
    'segmentation': {
        'model.decode_head.num_classes': [0],
        'model.test_cfg.mode': ['slid'],
        'model.test_cfg.stride': [(0, 0)],
        'model.data_preprocessor': [REMOVED],
    },
    'detection': {
        'model.backbone.out_indices': [[-1], [0, 1, 2]],
        'model.neck.1.in_channels': [[32] * 4, [64] * 3],
        'model.neck.0.in_channels': [32],
        'model.data_preprocessor': [REMOVED],
    },
}


def named(family: str) -> Iterator[Mistake]:
    """Mistakes that went unnoticed once."""
    for key, values in NAMED.get(family, {}).items():
        path = (int(k) if k.isdigit() else k for k in key.split('.'))
        path = tuple(path)
        for value in values:
            yield Mistake(path, value)


def drawn(cfg: dict, count: int) -> list[Mistake]:
    """So many different mistakes in a config."""
    found = {}
    places = list(_places(cfg))
    while len(found) < count:
        mistake = _draw(places, random.choice(KINDS))
        if mistake:
            found[str(mistake)] = mistake
    return list(found.values())


def _draw(places: list[tuple], kind: str) -> Mistake | None:
    """A mistake of a kind at some place, None if there is none of it."""
    path, value = random.choice(places)
    last = path[-1]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == 'number' and number:
        other = random.choice(NUMBERS)
        # A machine starts as many processes as it is told.
        many = last == 'num_workers' and other > 0
        return None if many or other == value else Mistake(path, other)
    if kind == 'kind' and (number or isinstance(value, (bool, str))):
        other = random.choice(OTHERS)
        flags = isinstance(value, bool) and isinstance(other, bool)
        return None if flags or last == 'num_workers' else Mistake(path, other)
    if kind == 'swap' and isinstance(value, (list, tuple)):
        numbers = all(isinstance(inner, (int, float)) for inner in value)
        if numbers and len(value) == 2 and value[0] < value[1]:
            return Mistake(path, value[::-1])
    if kind == 'key' and isinstance(last, str) and len(last) > 2:
        return Mistake(path, key=_with_a_slip(last))
    if kind == 'removed' and len(path) > 1:
        return Mistake(path)
    if kind == 'type' and last == 'type' and isinstance(value, str):
        return Mistake(path, _with_a_slip(value))
    return None


def _with_a_slip(word: str) -> str:
    place = random.randrange(1, len(word))
    return word[:place] + word[place + 1 :]


def _places(part: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Every place of a config, and what stands there."""
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        if path or key in READ:
            yield (*path, key), value
            if isinstance(value, (dict, list)):
                yield from _places(value, (*path, key))


def _at(cfg: Any, path: list) -> Any:
    for key in path:
        cfg = cfg[key]
    return cfg
