# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds the config keys that repeat a value of a data set.

The ``ann_file`` of a COCO evaluator repeats that of its data set. The key
``test_pipeline``, which mmseg's ``inference_model`` reads, repeats the
pipeline of the test set.
"""

import copy
import os
from collections.abc import Collection, Iterator
from typing import Any

from mmengine.config import Config

from mmmoca.config_parts import member_configs, parts_of


def follow_datasets(cfg: Config, chosen: Collection[str] = ()) -> None:
    """Copy values of data sets into the keys that repeat them.

    Args:
        cfg (Config): Changed in place.
        chosen (Collection[str]): Dotted keys that the user has set by options.

    Raises:
        ValueError: If an option gives an evaluator a file other than that of
            its data set, or changes a part of a repeated pipeline.
    """
    for key, held, said in copies(cfg):
        if plain(held) == plain(said):
            continue
        if any(one.startswith(f'{key}.') for one in chosen):
            raise ValueError(
                f'{key} only repeats the pipeline of '
                f'{key.partition("_")[0]}_dataloader.dataset: change it there'
            )
        is_chosen = any(f'{key}.'.startswith(f'{one}.') for one in chosen)
        if is_chosen and os.path.realpath(held) != os.path.realpath(said):
            raise ValueError(
                f'{key}={held}: must be the file of its data set, {said}'
            )
        cfg.merge_from_dict({key: copy.deepcopy(said)})


def copies(cfg: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys that repeat a value of a data set.

    Args:
        cfg (Config): The config.

    Yields:
        tuple[str, Any, Any]: The key, its value, and the value in the data
        set.
    """
    for stage in ('val', 'test'):
        loader = cfg.get(f'{stage}_dataloader') or {}
        parts = [*member_configs(loader.get('dataset') or {})]
        if len(parts) != 1:
            continue
        key, pipeline = f'{stage}_pipeline', parts[0].get('pipeline')
        if cfg.get(key) and pipeline:
            yield key, cfg[key], pipeline
        evaluators = cfg.get(f'{stage}_evaluator')
        for number, part in enumerate(parts_of(evaluators)):
            held, file = part.get('ann_file'), parts[0].get('ann_file')
            if held and file:
                several = not isinstance(evaluators, dict)
                key = f'{stage}_evaluator' + several * f'.{number}'
                said = os.path.join(parts[0].get('data_root') or '', file)
                yield f'{key}.ann_file', held, said


def plain(value: Any) -> Any:
    """Return a value without the ``_scope_`` that MMEngine adds to parts."""
    if isinstance(value, dict):
        parts = value.items()
        return {k: plain(v) for k, v in parts if k != '_scope_'}
    return [*map(plain, value)] if isinstance(value, list | tuple) else value
