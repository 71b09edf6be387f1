# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Mistakes in configs."""

import copy
import random
from collections.abc import Iterator
from math import inf, nan
from typing import Any, NamedTuple

# What a run of the tools' reads; the rest of a file are variables.
LIVE = (
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
REMOVED = object()


class Mistake(NamedTuple):
    """One mistake: the value of a key, or a key."""

    path: tuple
    value: Any = REMOVED
    key: str | None = None  # what the last one of the path becomes

    def __str__(self) -> str:
        path = '.'.join(map(str, self.path))
        if self.key:
            return f'{path} spelt {self.key}'
        return path + (' removed' if self.value is REMOVED else f'={self.value!r}')

    @property
    def names(self):
        strings = [k for k in self.path if isinstance(k, str)]
        names = {strings[-1], self.key}
        if isinstance(self.value, str):
            names.add(self.value)
        names -= {None}
        # Messages for people say 'mask ratio' of mask_ratios.
        return names | {name.replace('_', ' ').rstrip('s') for name in names}

    @property
    def of_validation(self):
        return self.path[0].startswith('val') or 'test_cfg' in self.path

    @property
    def harmless(self):
        return ''

    def of(self, cfg: dict) -> dict:
        cfg = copy.deepcopy(cfg)
        part = cfg
        for key in self.path[:-1]:
            part = part[key]
        last = self.path[-1]
        if self.key:
            part[self.key] = part.pop(last)
        elif self.value is REMOVED:
            part.pop(last, None)if isinstance(part, dict) else part.pop(last)
        elif isinstance(part, tuple):
            raise TypeError
        else:
            part[last] = self.value
        return cfg


NAMED = {
    'pretraining': {
        'optim_wrapper.accumulative_counts': [1.5],
        'model.head.kappa': [0, -3],
        'model.neck.depth': [0, -1],
        'optim_wrapper.optimizer.lr': [0, 1e9],
        'optim_wrapper.clip_grad.max_norm': [-1, 0],
        'optim_wrapper.paramwise_cfg.prototype_lr': [-1],
        'train_cfg.max_iters': [0, -5],
        'train_dataloader.dataset.pipeline.2.transforms.0.0.crop_ratio_range': [(0, 0)],
        'train_dataloader.dataset.pipeline.2.transforms.0.2.magnitude_range': [(2, 0.1)],
        'train_dataloader.dataset.pipeline.2.transforms.0.3.prob': [1.5],
        'model.data_preprocessor': [REMOVED],
        'train_dataloader.dataset.pipeline.0': [REMOVED],
        'default_hooks.checkpoint.interval': [0],
        'max_itres': [100],
        'default_hooks.codebook': [REMOVED, None],
        'default_hooks.teacher_ema': [REMOVED],
        'custom_hooks': [[], [dict(type='mmmoca.CodebookHook')]],
    },
    'fine-tuning': {
        'model.backbone.patch_size': [7],
        'model.backbone.drop_path_rate': [2],
        'model.data_preprocessor': [REMOVED],
        'train_dataloader.dataset.pipeline.0': [REMOVED],
    },
    'linear probing': {
        'param_scheduler.T_max': [0],
        'model.data_preprocessor': [REMOVED],
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


def named(family):
    for path, values in NAMED.get(family, {}).items():
        keys = tuple(int(k) if k.isdigit() else k for k in path.split('.'))
        for value in values:
            yield Mistake(keys, value)


def places(part, path=()):
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        if not path and key not in LIVE:
            continue
        yield (*path, key), value
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


NUMBERS = (0, -1, nan, inf, 1e9)
OTHERS = ('3x', True, None, [2, 3, 4], {})


def drawn(cfg, count):
    everything = list(places(cfg))
    numbers = [p for p, v in everything if isinstance(v, (int, float)) and not isinstance(v, bool)]
    scalars = [p for p, v in everything if isinstance(v, (int, float, str)) and p[-1] != 'type']
    pairs = [(p, v) for p, v in everything if isinstance(v, (list, tuple)) and len(v) == 2 and all(isinstance(x,(int,float)) for x in v) and v[0] < v[1]]
    dicts = [p for p, v in everything if isinstance(p[-1], str)]
    types = [(p, v) for p, v in everything if p[-1] == 'type']
    anything = [p for p, v in everything if len(p) > 1]
    found = {}
    def get(path):
        part = cfg
        for k in path: part = part[k]
        return part
    while len(found) < count:
        kind = random.choice(['number', 'number', 'type', 'type', 'swap', 'key', 'key', 'remove', 'name'])
        if kind == 'number':
            m = Mistake(random.choice(numbers), random.choice(NUMBERS))
        elif kind == 'type':
            p = random.choice(scalars)
            v = random.choice(OTHERS)
            if isinstance(get(p), bool) and isinstance(v, bool): continue
            m = Mistake(p, v)
        elif kind == 'swap':
            if not pairs: continue
            p, v = random.choice(pairs)
            m = Mistake(p, v[::-1])
        elif kind == 'key':
            p = random.choice(dicts)
            if len(p[-1]) < 3 : continue
            i = random.randrange(1, len(p[-1]))
            m = Mistake(p, key=p[-1][:i] + p[-1][i + 1:])
        elif kind == 'remove':
            m = Mistake(random.choice(anything))
        else:
            p, v = random.choice(types)
            i = random.randrange(1, len(v))
            m = Mistake(p, v[:i] + v[i + 1:])
        if 'num_workers' in m.path and m.value not in (0,-1,'3x',None): continue
        found[str(m)] = m
    return list(found.values())
