# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What keys of a config must have in common."""

from collections.abc import Iterator
from typing import Any

from mmmoca.evaluation.knn import knn_settings

from .config_arguments import arguments_of

__all__ = ['misfits', 'misfits_of_part']


def misfits(cfg: dict) -> Iterator[str]:
    """What a config lacks without any class saying so.

    Args:
        cfg (dict): A whole config.

    Yields:
        str: What is missing, and what to write.
    """
    for stage in ('train', 'val', 'test'):
        loader = cfg.get(f'{stage}_dataloader')
        if isinstance(loader, dict) and loader.get('dataset') is None:
            yield f'{stage}_dataloader.dataset: must be there'
    yield from _unmeasured(cfg)
    yield from _unscheduled(cfg)
    loader, model = cfg.get('train_dataloader'), cfg.get('model')
    if not isinstance(loader, dict) or not isinstance(model, dict):
        return
    takes = {'data_preprocessor', '**'}
    candidates = arguments_of('model', model, cfg.get('default_scope'))
    if (
        all(part.get('data_preprocessor') is None for part in (model, cfg))
        and any(takes & arguments.keys() for arguments, _ in candidates)
        and not any('Normalize' in name for name in _types(loader))
    ):
        yield (
            'model.data_preprocessor: must be there, or the network sees '
            'pixels from 0 to 255: write its type, mean and std, or dict() '
            'if that is meant'
        )


def _unmeasured(cfg: dict) -> Iterator[str]:
    """The best checkpoint by a k-NN accuracy that nothing measures."""
    loop = cfg.get('val_cfg') or {}
    hook = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    wanted = hook.get('save_best') or ()
    if not str(loop.get('type')).endswith('KNNValLoop'):
        return
    k, temperature = loop.get('k', (10, 20)), loop.get('temperature', 0.07)
    try:
        names = [name for name, _, _ in knn_settings(k, temperature)]
    except (TypeError, ValueError):
        return  # which the loop says
    known = [f'knn/top{n}_{name}' for name in names for n in (1, 5)]
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if name.startswith('knn/') and name not in known:
            yield (
                f'default_hooks.checkpoint.save_best={name}: val_cfg measures '
                f'{", ".join(known)}; take one of them, or another val_cfg.k'
            )


def _unscheduled(cfg: dict) -> Iterator[str]:
    """A schedule by epochs of a loop that has none."""
    loop, schedules = cfg.get('train_cfg'), cfg.get('param_scheduler')
    if not str((loop or {}).get('type')).endswith('IterBasedTrainLoop'):
        return
    listed = isinstance(schedules, (list, tuple))
    for index, schedule in enumerate(schedules if listed else [schedules]):
        if (
            isinstance(schedule, dict)
            and schedule.get('by_epoch', True)
            and 'end' not in schedule
        ):
            key = f'param_scheduler.{index}' if listed else 'param_scheduler'
            yield (
                f'{key}.by_epoch: must be False for train_cfg.type='
                'IterBasedTrainLoop, or the schedule ends after the first '
                'epoch (convert_to_iter_based goes with it)'
            )


def misfits_of_part(part: dict, path: str) -> Iterator[str]:
    """What keys of one dict contradict in each other.

    Args:
        part (dict): A part of a config.
        path (str): Its dotted key.

    Yields:
        str: The key, and what to write.
    """
    size, patch = part.get('img_size'), part.get('patch_size')
    sizes = size if isinstance(size, (list, tuple)) else [size]
    numbers = all(isinstance(n, int) and n > 0 for n in (patch, *sizes))
    # Where maps are resized, the grid of positions may be of any size.
    if numbers and 'out_indices' not in part and any(n % patch for n in sizes):
        yield f'{path}.patch_size={patch}: must divide img_size={size}'
    sampler = part.get('sampler')
    if not isinstance(sampler, dict) or 'dataset' not in part:
        return
    seeded = str(sampler.get('type')).endswith('SeededSampler')
    if seeded and not any(
        name.endswith('SeedTransforms') for name in _types(part['dataset'])
    ):
        yield (
            f'{path}.dataset.pipeline: must begin with '
            "dict(type='mmmoca.SeedTransforms'), or a run that was resumed "
            'would see other views'
        )


def _types(part: Any) -> Iterator[str]:
    """All types that a part of a config names."""
    if isinstance(part, dict):
        if 'type' in part:
            yield str(part['type'])
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for inner in part:
            yield from _types(inner)
