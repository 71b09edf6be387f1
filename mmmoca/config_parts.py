# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parts of a config. Importing this module does not load PyTorch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmengine.config import Config, ConfigDict


def parts_of(value: Any) -> Sequence:
    """Return the parts of a key that takes a dict, a text, or several."""
    return [value] if isinstance(value, dict | str) else value or []


def short_name(part: Mapping) -> str:
    """Return the type of a part without its scope."""
    return str(part.get('type')).rpartition('.')[2]


def is_plain(value: Any) -> bool:
    """Return whether a value has neither a dict nor None in it."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return not isinstance(value, Mapping | None)


def preprocessor_of(config: Mapping) -> Mapping:
    """Return the data preprocessor, that of the model or of the config."""
    own = (config.get('model') or {}).get('data_preprocessor')
    return own or config.get('data_preprocessor') or {}


def member_configs(dataset: dict) -> Iterator[dict]:
    """Yield the configs of the data sets inside of a wrapper's config."""
    inside = parts_of(dataset.get('datasets') or dataset.get('dataset'))
    if not inside:
        yield dataset
    for part in inside:
        yield from member_configs(part)


def smallest_crop(step: Mapping) -> float:
    """Return the side of a RandomResizedCrop's smallest crop of a square.

    Args:
        step (Mapping): Config of the transform.

    Returns:
        float: A share of the square's side.
    """
    share = min(step.get('crop_ratio_range', (0.08, 1.0)))
    low, high = step.get('aspect_ratio_range', (3 / 4, 4 / 3))
    return (min(low, 1 / high) * share) ** 0.5


def stage_loaders(cfg: Config, stage: str) -> dict[str, ConfigDict]:
    """Return the loaders of a stage and of its loop.

    Args:
        cfg (Config): The config.
        stage (str): 'train', 'val' or 'test'.

    Returns:
        dict[str, ConfigDict]: Loaders by what they are for: 'val', 'val bank'.
    """
    found = {stage: cfg.get(f'{stage}_dataloader')}
    for key, loader in (cfg.get(f'{stage}_cfg') or {}).items():
        if key.endswith('_dataloader'):
            found[f'{stage} {key.removesuffix("_dataloader")}'] = loader
    return {name: loader for name, loader in found.items() if loader}
