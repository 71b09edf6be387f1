# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a checkpoint of a run tells of the run, and its logs of figures."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..recorded_config import recorded_config

__all__ = ['figures_of', 'recipe_of']


def recipe_of(meta: Mapping) -> dict[str, str]:
    """How an encoder was trained.

    Args:
        meta (Mapping): ``meta`` of its checkpoint.

    Returns:
        Dict[str, str]: Title -> text of what is known. Of folders only the
        name is told, since a card may be published.
    """
    config = recorded_config(meta)
    dataset = _at(config, 'train_dataloader', 'dataset') or {}
    optimizer = _at(config, 'optim_wrapper', 'optimizer') or {}
    return {
        title: str(text)
        for title, text in (
            ('config', _config_name(meta)),
            ('data', _data(dataset)),
            ('trained for', _duration(meta)),
            ('images a step', meta.get('global_batch_size')),
            ('optimiser', optimizer.get('type')),
            ('learning rate', optimizer.get('lr')),
            ('weight decay', optimizer.get('weight_decay')),
            ('seed', meta.get('seed')),
        )
        if text not in (None, '')
    }


def figures_of(meta: Mapping, path: str | os.PathLike) -> dict[str, float]:
    """What the run measured of this very checkpoint.

    Args:
        meta (Mapping): ``meta`` of the checkpoint.
        path (str | os.PathLike): The file. Logs are looked for beside it,
            where MMEngine writes them.

    Returns:
        Dict[str, float]: Metric -> value, such as 'knn/top1_k20'. Empty
        where the logs of that run are not there.
    """
    name = str(meta.get('experiment_name', ''))
    step = _step_in_logs(meta)
    figures = {}
    for log in Path(path).parent.glob('*/vis_data/scalars.json'):
        # MMEngine puts the time of the start, the folder, after the name.
        if step is None or not name.endswith(f'_{log.parents[1].name}'):
            continue
        for line in log.read_text(encoding='utf-8').splitlines():
            record = json.loads(line)
            if record.get('step') == step and 'iter' not in record:
                figures |= {k: v for k, v in record.items() if '/' in k}
    return figures


def _step_in_logs(meta: Mapping) -> int | None:
    """By which number the logs call the validation of a checkpoint."""
    config = recorded_config(meta)
    hook = _at(config, 'default_hooks', 'logger') or {}
    by_epoch = hook.get('log_metric_by_epoch', True)
    # A loop of iterations counts no epochs.
    return meta.get('epoch' if by_epoch else 'iter') or None


def _config_name(meta: Mapping) -> str:
    """MMEngine's name of a run without the time of its start."""
    return '_'.join(str(meta.get('experiment_name', '')).split('_')[:-2])


def _data(dataset: Mapping) -> str:
    """The name of the folder of images."""
    prefix = dataset.get('data_prefix')
    parts = [dataset.get('data_root'), prefix]
    names = [Path(p).name for p in parts if isinstance(p, str) and p]
    return '/'.join(names)


def _duration(meta: Mapping) -> str:
    parts = [
        f'{meta[key]} {title}'
        for key, title in (('epoch', 'epochs'), ('iter', 'steps'))
        if meta.get(key)
    ]
    return ', '.join(parts)


def _at(config: Mapping, *keys: str) -> Any:
    for key in keys:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config
