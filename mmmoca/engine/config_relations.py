# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What keys of a config must have in common."""

from collections.abc import Iterator
from typing import Any

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
