# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads parts of a config. Importing this module does not load PyTorch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmengine.config import Config, ConfigDict


def parts_of(value: Any) -> Sequence:
    """Wrap a dict or string in a list; keep a list; return [] for None."""
    return [value] if isinstance(value, dict | str) else value or []


def short_name(part: Mapping) -> str:
    """Return the ``type`` of a part without its scope."""
    return str(part.get('type')).rpartition('.')[2]


def is_plain(value: Any) -> bool:
    """Return False for a dict, for None, and for a list that has either."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return not isinstance(value, Mapping | None)


def preprocessor_of(config: Mapping) -> Mapping:
    """Return the config of the data preprocessor, or {}.

    One in the model's config takes precedence over one at the top level.
    """
    own = (config.get('model') or {}).get('data_preprocessor')
    return own or config.get('data_preprocessor') or {}


def member_configs(dataset: dict) -> Iterator[dict]:
    """Yield the configs of the data sets in a wrapper's config.

    If the data set is not a wrapper, its own config is yielded.
    """
    inside = parts_of(dataset.get('datasets') or dataset.get('dataset'))
    if not inside:
        yield dataset
    for part in inside:
        yield from member_configs(part)


def smallest_crop(step: Mapping) -> float:
    """Return the shorter side of the smallest crop of a RandomResizedCrop.

    Args:
        step (Mapping): Config of the transform.

    Returns:
        float: The side as a share of the image's side, for a square image.
    """
    share = min(step.get('crop_ratio_range', (0.08, 1.0)))
    low, high = step.get('aspect_ratio_range', (3 / 4, 4 / 3))
    return (min(low, 1 / high) * share) ** 0.5


def stage_loaders(cfg: Config, stage: str) -> dict[str, ConfigDict]:
    """Return the configs of the data loaders that a stage reads.

    A stage has its own loader, and its loop may have further ones.

    Args:
        cfg (Config): The config.
        stage (str): 'train', 'val' or 'test'.

    Returns:
        dict[str, ConfigDict]: Configs of the loaders by their names, such as
        'val' for the stage's own loader and 'val bank' for the loop's
        ``bank_dataloader``.
    """
    found = {stage: cfg.get(f'{stage}_dataloader')}
    for key, loader in (cfg.get(f'{stage}_cfg') or {}).items():
        if key.endswith('_dataloader'):
            found[f'{stage} {key.removesuffix("_dataloader")}'] = loader
    return {name: loader for name, loader in found.items() if loader}
