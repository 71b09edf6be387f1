# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds slips in a config before anything is built.

OpenMMLab's classes accept almost any value of an argument, and then fail later
or train on nonsense. This package's own classes check their arguments
themselves.
"""

import difflib
import itertools
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

from mmengine.config import Config
from mmengine.utils import to_2tuple

from mmmoca.config_parts import (
    parts_of,
    preprocessor_of,
    short_name,
    stage_loaders,
)

from .options import entries
from .settings import settings_of

# Lowest and highest values of arguments that mean the same in all packages.
# Arguments may be sequences of such values, except those in `_ONE`.
_RANGES = {
    'batch_size max_epochs max_iters accumulative_counts base_batch_size '
    'num_classes img_size patch_size stride val_interval': (1, 1e12),
    'crop_size': (1e-9, 1e12),  # a share of the image for mmdet
    'prob momentum drop_path_rate drop_rate attn_drop_rate layer_decay_rate': (
        0,
        1,
    ),
    'std': (1e-9, 65535),
    'max_norm': (1e-9, math.inf),
    'lr weight_decay': (0, 1000),
    'seed': (0, 2**32 - 1),  # what NumPy accepts
}
_RANGES = {name: r for names, r in _RANGES.items() for name in names.split()}
_ONE = [
    'batch_size',
    'max_epochs',
    'max_iters',
    'accumulative_counts',
    'base_batch_size',
    'max_norm',
    'lr',
    'weight_decay',
    'seed',
]
# Strides of ViTFeaturePyramid.
PYRAMID_STRIDES = (4, 8, 16, 32)
# Parts whose keys are names that the user chooses.
_NAMES = re.compile(r'(custom_keys|subsets|mapping|metainfo)\.$')
_PARTS = re.compile(
    r'model|optim_wrapper|default_hooks(\.\w+)?|auto_scale_lr|'
    r'(train|val|test)_(cfg|dataloader)|env_cfg'
)
# The top-level keys that a run reads: those of MMEngine's Runner and its
# parts, and those of this package. They are listed here because importing
# Runner imports PyTorch.
_KEYS = (
    'auto_scale_lr cfg custom_hooks data_preprocessor default_hooks '
    'default_scope env_cfg experiment_name launcher load_from log_level '
    'log_processor model optim_wrapper param_scheduler randomness resume '
    'test_cfg test_dataloader test_evaluator train_cfg train_dataloader '
    'val_cfg val_dataloader val_evaluator visualizer work_dir '
    'activation_checkpointing compile efficient_conv_bn_eval '
    'find_unused_parameters imports_from look model_wrapper_cfg runner_type '
    'settings sync_bn'
)
# Transforms after which the values of an image are no longer 0 to 255.
_OTHER_SCALE = re.compile('LoadBands|ToTensor|Normalize|Rescale')
_MASKS = re.compile(r"'(mmseg\.)?LoadAnnotations'")
RUN_KEYS = set(_KEYS.split())
# Default hooks of MMEngine's Runner, which knows their types.
MMENGINE_HOOKS = (
    'runtime_info',
    'timer',
    'sampler_seed',
    'logger',
    'param_scheduler',
    'checkpoint',
)


def check_config(cfg: Config) -> None:
    """Check a config before anything is built.

    A class refuses arguments that it does not know. This function also finds
    misspelt keys that no class would refuse: at the top level, and where a
    config file adds the misspelt key to a part that inherits the right one.

    Args:
        cfg (Config): Any OpenMMLab config.

    Raises:
        ValueError: If there are problems. The message lists all of them.
    """
    settings = cfg.to_dict()
    problems = [
        *_misspelt(settings, {'custom_imports', *RUN_KEYS, *settings_of(cfg)}),
        *_problems(settings, ''),
        *_wrong_schedules(settings),
        *_wrong_images(settings),
        *_wrong_hooks(settings),
        *_wrong_strides(settings),
        *_wrong_vit(settings),
        *_wrong_level(settings),
        *_endless(settings),
    ]
    if problems:
        raise ValueError('; '.join(problems))


def _misspelt(settings: dict, known: set[str]) -> Iterator[str]:
    """Yield the top-level keys that are misspellings of known keys."""
    # A key is a variable, not a slip, if its value and that of the known key
    # have different types.
    pairs = [
        (name, key)
        for key in settings.keys() - known
        if not key.endswith('_')  # variables may have such names
        for name in known
        if type(settings[key]) is type(settings.get(name, settings[key]))
    ]
    yield from _slips(pairs, '')


def _wrong_schedules(settings: dict) -> Iterator[str]:
    """Yield what is wrong with the schedules of an iteration-based loop."""
    if 'IterBased' not in str(settings.get('train_cfg')):
        return
    for schedule in parts_of(settings.get('param_scheduler')):
        if 'end' not in schedule and schedule.get('by_epoch', True):
            yield (
                'param_scheduler.by_epoch: must be False for train_cfg.type='
                'IterBasedTrainLoop, or the schedule ends after one epoch'
            )


def _wrong_hooks(settings: dict) -> Iterator[str]:
    """Yield default hooks without a type, and custom hooks not in a list."""
    hooks = settings.get('default_hooks') or {}
    for name, hook in hooks.items():
        untyped = isinstance(hook, dict) and 'type' not in hook
        if untyped and name not in MMENGINE_HOOKS:
            known = {*MMENGINE_HOOKS, *hooks} - {name}
            near = difflib.get_close_matches(name, known, 1)
            hint = f': did you mean {near[0]}?' if near else ''
            yield f'default_hooks.{name} has no type{hint}'
    if isinstance(settings.get('custom_hooks'), dict):
        yield 'custom_hooks: must be a list of dicts'


def _wrong_strides(settings: dict) -> Iterator[str]:
    """Yield feature pyramids that do not fit the backbone or the heads."""
    model = settings.get('model') or {}
    size = (model.get('backbone') or {}).get('patch_size', 16)
    necks = [*parts_of(model.get('neck'))]
    for neck in necks:
        if short_name(neck) != 'ViTFeaturePyramid':
            continue
        own = neck.get('patch_size', 16)
        # CheckedDetector, which has `detector`, fills the patch size in.
        if 'detector' not in model and to_2tuple(own) != to_2tuple(size):
            yield (
                f'model.neck.patch_size={own}: must be {size}, the patch size '
                'of model.backbone, and the strides must be a quarter, half, '
                'one and two patches'
            )
        first = sum(part.get('start_level', 0) for part in necks)
        strides = [*neck.get('strides', PYRAMID_STRIDES)][first:]
        for key, found in _strides(model):
            if any(
                to_2tuple(a) != to_2tuple(b) for a, b in zip(strides, found)
            ):
                yield (
                    f'{key}={[*found]}: must agree with the maps of '
                    f'model.neck, whose strides begin with {strides}'
                )


def _wrong_level(settings: dict) -> Iterator[str]:
    """Yield a log level that does not exist."""
    level = settings.get('log_level')
    # The number of a level; for an unknown name, a string.
    number = logging.getLevelName(level) if isinstance(level, str) else 0
    if not isinstance(number, int):
        yield f'log_level={level}: write DEBUG, INFO, WARNING or ERROR'


def _endless(settings: dict) -> Iterator[str]:
    """Yield the samplers that would let an evaluation run forever."""
    for stage in ('val', 'test'):
        for role, loader in stage_loaders(settings, stage).items():
            sampler = loader.get('sampler') or {}
            endless = short_name(sampler) == 'InfiniteSampler'
            if endless or sampler.get('infinite'):
                key = role.replace(' ', '_cfg.')  # 'val bank' is in val_cfg
                yield (
                    f'{key}_dataloader.sampler never ends: write '
                    "dict(type='DefaultSampler', shuffle=False)"
                )


def _wrong_vit(settings: dict) -> Iterator[str]:
    """Yield keys without effect, and a neck that does not fit the ViT."""
    model = settings.get('model') or {}
    vit = model.get('backbone') or {}
    if not short_name(vit).endswith(('ViT', 'VisionTransformer')):
        return
    if short_name(model) == 'MOCA':
        yield from _without_effect(model, vit)
    # Other ViT classes may have another default of out_type, so a missing
    # out_type is refused only for VisionTransformer.
    plain = short_name(vit) == 'VisionTransformer'
    out = vit.get('out_type', 'cls_token' if plain else 'featmap')
    for neck in parts_of(model.get('neck')):
        if short_name(neck) == 'GlobalAveragePooling' and out != 'featmap':
            yield (
                'model.neck=GlobalAveragePooling needs model.backbone.out_type'
                f'=featmap, but it is {out}: with {out}, write model.neck=None'
            )


def _without_effect(model: dict, vit: dict) -> Iterator[str]:
    """Yield keys that pretraining would ignore without a word."""
    embedding = model.get('image_embedding')
    if vit.get('out_type') == 'cls_token' and embedding != 'cls':
        yield (
            'model.backbone.out_type=cls_token has no effect in MOCA: write '
            'model.image_embedding=cls'
        )
    for key, part in (('model', model), ('model.backbone', vit)):
        for init in parts_of(part.get('init_cfg')):
            if 'type' in init and short_name(init) != 'Pretrained':
                yield (
                    f'{key}.init_cfg={short_name(init)} has no effect: MOCA '
                    'initialises its encoders itself'
                )


def _strides(model: dict) -> Iterator[tuple[str, Sequence]]:
    """Yield the strides that parts of a detector expect of feature maps."""
    for key, value in entries(model):
        *parts, last = key.split('.')
        of_anchors = last == 'strides' and 'neck' not in parts
        known = last == 'featmap_strides' or of_anchors
        if (
            known
            and 'backbone' not in parts
            and isinstance(value, list | tuple)
        ):
            yield f'model.{key}', value


def _wrong_images(settings: dict) -> Iterator[str]:
    """Yield settings that do not fit 8-bit images or masks."""
    model = settings.get('model') or {}
    loader = str([settings.get(f'{s}_dataloader') for s in ('train', 'test')])
    if re.search('LoadImage', loader) and not _OTHER_SCALE.search(loader):
        normalise = preprocessor_of(settings)
        problem = wrong_scale(normalise.get('mean'), normalise.get('std'))
        if problem:
            yield f'model.data_preprocessor: {problem}'
    if _MASKS.search(loader):
        for head in parts_of(model.get('decode_head')):
            number = head.get('num_classes')
            if isinstance(number, Real) and number > 255:
                yield (
                    f'model.decode_head.num_classes={number}: must be at most '
                    '255, because mmseg.LoadAnnotations reads 8-bit masks, '
                    'in which 255 stands for no class'
                )


def run_keys(cfg: Config) -> set[str]:
    """Return the top-level keys that a run of a config reads.

    ``data_preprocessor`` is not one of them if the model has its own: MMEngine
    gives it only to a model that has none.
    """
    model = cfg.get('model') or {}
    dead = {'data_preprocessor'} if 'data_preprocessor' in model else set()
    return RUN_KEYS - dead


def is_variable(name: str) -> bool:
    """Return whether neither a run nor an inferencer reads a top-level key."""
    known = {'custom_imports', *RUN_KEYS}
    return name not in known and not re.match('tta_|test_', name)


def wrong_scale(
    mean: Sequence[float] | None, std: Sequence[float] | None
) -> str | None:
    """Check that a mean and std are not for values from 0 to 1.

    Args:
        mean (Sequence[float], optional): Mean of each channel.
        std (Sequence[float], optional): Standard deviation of each channel.

    Returns:
        str: What is wrong, and what to write; None if the mean and std may
        be right. A mean of 0 with a std of 1 is right: it changes nothing.
    """
    numbers = [*(mean or ()), *(std or ())]
    if not mean or not std or {*mean} == {0} and {*std} == {1}:
        return None
    if not all(isinstance(n, Real) and 0 <= n <= 1 for n in numbers):
        return None
    times = [[float(f'{255 * n:.6g}') for n in part] for part in (mean, std)]
    return (
        f'mean={[*mean]} and std={[*std]} are for values from 0 to 1, but '
        f'8-bit images have values from 0 to 255: write mean={times[0]} and '
        f'std={times[1]}'
    )


def _problems(part: dict | list | tuple, path: str) -> Iterator[str]:
    """Yield the problems of a part of a config, and of its inner parts."""
    if path and isinstance(part, dict) and not _NAMES.search(path):
        # In each pair the inherited key, which is right, comes first.
        yield from _slips(itertools.combinations(part, 2), path)
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        inner = f'{path}{key}'
        is_part = isinstance(value, (dict, type(None)))
        if _PARTS.fullmatch(inner) and not is_part:
            yield f'{inner}={value!r}: must be a dict'
        # complete_recipe replaces 'auto'.
        elif key in _RANGES and not (is_part or value == 'auto'):
            low, high = _RANGES[key]
            several = isinstance(value, list | tuple)
            if several and key in _ONE or not _between(value, low, high):
                yield (
                    f'{inner}={value!r}: must be a number from {low:g} to '
                    f'{high:g}'
                )
        elif callable(value) and not isinstance(value, type):
            yield (
                f'{inner} is a function, which cannot be saved in a config: '
                'put it into a class, in a module that custom_imports names'
            )
        elif key == 'classes' and isinstance(value, str):
            # The string may be the name of a file that lists the classes.
            if not os.path.isfile(value):
                yield (
                    f'{inner}={value!r}: must be a list of names; write '
                    f'({value!r},) for a single name'
                )
        elif isinstance(value, (dict, list, tuple)):
            yield from _problems(value, f'{inner}.')


def _between(value: Any, low: float, high: float) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_between(item, low, high) for item in value)
    return isinstance(value, Real) and low <= value <= high


def _slips(pairs: Iterable[tuple[Any, Any]], path: str) -> Iterator[str]:
    """Yield a problem for each pair of a right key and a misspelling of it."""
    for name, key in pairs:
        if key in _with_slips(name) or name in _with_slips(key):
            yield f'{path}{key}: there is no such key. Did you mean {name}?'


def _with_slips(name: Any) -> Iterator[str]:
    """Yield a name with two letters swapped, or with one letter left out."""
    # Short names, and names that differ in a digit, are similar on purpose:
    # type, dtype, view1, view2.
    if not isinstance(name, str) or len(name) < 5:
        return
    for i, letter in enumerate(name):
        if not letter.isdigit():
            yield name[:i] + name[i + 1 : i + 2] + letter + name[i + 2 :]
            if len(name) > 5:
                yield name[:i] + name[i + 1 :]
