# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Keys of a config that repeat what a data set says.

A COCO evaluator reads the annotations of its data set again, and
``inference_model`` of mmseg takes ``test_pipeline``.
"""

import copy
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mmengine.config import Config

from mmmoca.config_parts import member_configs, parts_of

from .config_files import ConfigFile


class Copy(NamedTuple):
    """A key that repeats what a data set says.

    Attributes:
        key (str): The dotted key.
        held (Any): What it holds.
        said (Any): What the data set says.
        sources (re.Pattern): The keys that say it.
    """

    key: str
    held: Any
    said: Any
    sources: re.Pattern


def copies(cfg: Config) -> Iterator[Copy]:
    """Yield the keys of validation and test that repeat others.

    Args:
        cfg (Config): The config.
    """
    for stage in ('val', 'test'):
        loader = cfg.get(f'{stage}_dataloader') or {}
        parts = [*member_configs(loader.get('dataset') or {})]
        if len(parts) != 1:
            continue
        place = rf'{stage}_dataloader\.dataset\.(.*\.)?'
        key, pipeline = f'{stage}_pipeline', parts[0].get('pipeline')
        if cfg.get(key) and pipeline:
            sources = re.compile(f'{place}pipeline')
            yield Copy(key, cfg[key], pipeline, sources)
        evaluators = cfg.get(f'{stage}_evaluator')
        for number, part in enumerate(parts_of(evaluators)):
            held, file = part.get('ann_file'), parts[0].get('ann_file')
            if held and file:
                several = not isinstance(evaluators, dict)
                key = f'{stage}_evaluator' + several * f'.{number}'
                said = os.path.join(parts[0].get('data_root') or '', file)
                # A setting is one, too.
                sources = re.compile(f'data_root|{place}(ann_file|data_root)')
                yield Copy(f'{key}.ann_file', held, said, sources)


def up_to_date(cfg: Config, files: Sequence[ConfigFile]) -> list[str]:
    """Return the keys of copies that shall go on to repeat their data set.

    Args:
        cfg (Config): Before options are written.
        files (Sequence[ConfigFile]): Its files. One may have changed the data
            set alone since the key was written.
    """
    keys = []
    for one in copies(cfg):
        written = changed = -1
        for number, file in enumerate(files):
            written = number if one.key in file.keys else written
            if any(map(one.sources.fullmatch, file.keys)):
                changed = number
        if _plain(one.held) == _plain(one.said) or changed > written >= 0:
            keys.append(one.key)
    return keys


def _plain(value: Any) -> Any:
    """Return a value without the scopes that MMEngine adds to some parts."""
    if isinstance(value, dict):
        parts = value.items()
        return {k: _plain(v) for k, v in parts if k != '_scope_'}
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value


def renew(cfg: Config, keys: Iterable[str]) -> None:
    """Let keys repeat what the data set says now.

    Args:
        cfg (Config): Changed in place.
        keys (Iterable[str]): Some of :func:`up_to_date`.
    """
    new = {
        one.key: copy.deepcopy(one.said)
        for one in copies(cfg)
        if _plain(one.held) != _plain(one.said)
    }
    cfg.merge_from_dict({key: new[key] for key in keys if key in new})


def wrong_copies(cfg: Config) -> Iterator[str]:
    """Yield what is wrong with evaluators that judge by other annotations.

    Args:
        cfg (Config): The config.
    """
    for one in copies(cfg):
        files = one.held, one.said
        if (
            one.key.endswith('ann_file')
            and all(map(os.path.isfile, files))
            and not os.path.samefile(*files)
        ):
            yield (
                f'{one.key}={one.held!r}: must be the file of its data set, '
                f'{one.said!r}'
            )
