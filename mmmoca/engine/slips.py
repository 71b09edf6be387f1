# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds values in a config that are probably slips, but may be intended."""

import difflib
import functools
import math
import re
from collections.abc import Callable, Set
from itertools import chain
from numbers import Real

from mmengine.config import Config
from mmengine.optim import scheduler
from mmengine.utils import to_2tuple

from mmmoca.checkpoints.fit import usual_tap
from mmmoca.config_parts import (
    member_configs,
    parts_of,
    short_name,
    smallest_crop,
)
from mmmoca.messages import listed

from .config_check import RUN_KEYS, run_keys
from .config_files import ConfigFile, config_files, read_config
from .copies import plain
from .freezing_check import count_layers
from .options import entries, keys_named, place
from .recipe import MOMENTUM, global_batch_size
from .settings import settings_of

PROTOTYPE_LR = 'optim_wrapper.paramwise_cfg.prototype_lr'


def likely_slips(cfg: Config) -> list[str]:
    """List what is probably a slip in the config of a training run.

    These are a learning rate for another batch size, schedules that change a
    rate which the paper keeps constant, a momentum in MMEngine's definition
    instead of the paper's, images that are made smaller than the views need,
    a decoder that a low layer feeds, weights of a ViT that no hook checks, and
    variables that nothing reads.

    Args:
        cfg (Config): A config with a ``train_dataloader``.

    Returns:
        list[str]: One sentence for each likely slip.
    """
    slips = (
        _rate_slip(cfg),
        _schedule_slip(cfg),
        _momentum_slip(cfg),
        _size_slip(cfg),
        _tap_slip(cfg),
        _unchecked_slip(cfg),
        unread_variables(cfg),
    )
    return [slip for slip in slips if slip]


def _rate_slip(cfg: Config) -> str | None:
    batch = global_batch_size(cfg)
    base = (cfg.get('auto_scale_lr') or {}).get('base_batch_size', batch)
    if batch == base:
        return None
    return (
        f'the config has a learning rate for {base} images a step, but this '
        f'run has {batch}: --auto-scale-lr (auto_scale_lr.enable=True) scales '
        'it'
    )


def _schedule_slip(cfg: Config) -> str | None:
    names = [short_name(part) for part in parts_of(cfg.get('param_scheduler'))]
    names = [n for n in names if n.endswith('LR') and hasattr(scheduler, n)]
    if not names or place(cfg, PROTOTYPE_LR)[1] is None:
        return None
    return (
        'the learning rate of the prototype generators, which is constant in '
        f'the paper, also follows {listed(names)}: mmmoca.WarmupCosineLR '
        'keeps it constant'
    )


def _momentum_slip(cfg: Config) -> str | None:
    momentum = place(cfg, MOMENTUM)[1]
    if not isinstance(momentum, Real) or not 0 < momentum < 0.5:
        return None
    return (
        f'{MOMENTUM}={momentum} is the share of the teacher that a step keeps '
        f'(in MMEngine, the share it replaces): did you mean {1 - momentum:g}?'
    )


def _size_slip(cfg: Config) -> str | None:
    for part in member_configs(cfg.train_dataloader.dataset):
        steps = {short_name(step): step for step in part.get('pipeline', ())}
        most = steps.get('LoadImage', {}).get('reduce_to')
        views = steps.get('MultiView', {}).get('transforms', ())
        for step in chain(*views) if most else ():
            if short_name(step) == 'RandomResizedCrop':
                share = min(step.get('crop_ratio_range', (0.08, 1.0)))
                side = max(to_2tuple(step.scale))
                smallest = smallest_crop(step)
                if most * smallest < side and smallest:
                    needed = math.ceil(side / smallest)
                    return (
                        f'LoadImage.reduce_to={most} makes images so small '
                        f'that crops of {share:g} of their area are '
                        f'enlarged to views of {side} pixels: write '
                        f'reduce_to={needed}'
                    )
    return None


def _tap_slip(cfg: Config) -> str | None:
    vit = cfg.model.get('backbone') or {}
    tap, layers = vit.get('tap_layer'), count_layers(vit)
    if not (cfg.model.get('neck') and tap) or 2 * tap >= layers:
        return None
    return (
        f'layer {tap} of {layers} feeds the decoder (the authors take layer 8 '
        f'of 12): write model.backbone.tap_layer={usual_tap(layers)}'
    )


def _unchecked_slip(cfg: Config) -> str | None:
    hooks = [*(cfg.get('default_hooks') or {}).values()]
    hooks += cfg.get('custom_hooks') or ()
    kind = short_name(cfg.model.get('backbone') or {})
    loaded = [
        value
        for key, value in entries(cfg)
        if re.search(
            r'^load_from$|^model\..*(init_cfg\.checkpoint|pretrained)$', key
        )
    ]
    if (
        'CheckpointFitHook' in map(short_name, filter(None, hooks))
        or not kind.endswith(('ViT', 'VisionTransformer'))
        or not any(loaded)
    ):
        return None
    return (
        'no hook checks whether the checkpoint fits the model: write '
        "custom_hooks=[dict(type='mmmoca.CheckpointFitHook')]"
    )


def _lost_change(
    file: ConfigFile, names: Set[str], read: Callable[[str], Config]
) -> str | None:
    """Find a variable that a file changes while a key keeps the old value."""
    bases = [read(name) for name in file.bases if names]
    old = {n: plain(b[n]) for b in bases for n in names & b.keys()}
    lists = [name for name in old if isinstance(old[name], dict | list)]
    if not lists:
        return None
    own = plain(read(file.name).to_dict())
    held = [(k, v) for k, v in entries(own) if k.split('.')[0] in RUN_KEYS]
    for name in lists:
        keys = [key for key, value in held if value == old[name]]
        if keys and all(value != own[name] for _, value in held):
            key = re.sub(r'\.\d+\b.*', '', keys[0])
            return (
                f'{file.name} changes {name}, but {key} keeps the inherited '
                f'value: assign {key}, too'
            )
    return None


def unread_variables(cfg: Config) -> str | None:
    """Name the variables of a config file that nothing reads.

    If a file assigns an inherited variable again, such as ``data_root`` or
    ``train_pipeline``, the keys that its bases have computed from this
    variable do not change, so the new value may have no effect.

    Args:
        cfg (Config): A config.

    Returns:
        str: A sentence; None if all variables are read, or if the config
        inherits no other file.
    """
    files = config_files(cfg)
    known = {'custom_imports', *run_keys(cfg), *settings_of(cfg)}
    read_once = functools.cache(read_config)
    for file in files:
        if lost := _lost_change(file, file.variables - known, read_once):
            return lost
    for number, file in enumerate(files):
        # Files that inherit this one may read its variables.
        read = known.union(*(later.read for later in files[number:]))
        # test.py --tta reads these.
        read |= {'tta_model', 'tta_pipeline'}
        unread = sorted(file.variables - read)
        if file is not files[-1]:
            # Not every file that inherits a base uses its dicts and lists.
            parts = (dict, list, tuple)
            unread = [n for n in unread if not isinstance(cfg.get(n), parts)]
        if len(file.inherited) > 1 and unread:
            keys = [key for name in unread for key in keys_named(cfg, name)]
            whole = sorted(
                (key for key in keys if '.' in key),
                key=lambda key: not key.startswith('train'),
            )
            for name in () if whole else unread:
                whole += difflib.get_close_matches(name, settings_of(cfg), 1)
            instead = f': write {listed(whole, 4)}' if whole else ''
            return f'nothing reads {listed(unread)} in {file.name}{instead}'
    return None
