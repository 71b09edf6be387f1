# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Keys of a config that repeat what a data set says.

A COCO evaluator reads the annotations of its data set again, and
``inference_model`` of mmseg takes ``test_pipeline``.
"""

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mmengine.config import Config

from mmmoca.config_parts import parts_of

from .config_files import ConfigFile


class Copy(NamedTuple):
    """A key that repeats what a data set says.

    Attributes:
        key (str): The dotted key.
        held (Any): What it holds.
        said (Any): What the data set says.
        sources (tuple[str, ...]): The keys that say it.
    """

    key: str
    held: Any
    said: Any
    sources: tuple[str, ...]


def copies(cfg: Config) -> Iterator[Copy]:
    """Yield the keys of validation and test that repeat others.

    Args:
        cfg (Config): The config.
    """
    for stage in ('val', 'test'):
        place = f'{stage}_dataloader.dataset'
        dataset = (cfg.get(f'{stage}_dataloader') or {}).get('dataset') or {}
        key, pipeline = f'{stage}_pipeline', dataset.get('pipeline')
        if cfg.get(key) and pipeline:
            yield Copy(key, cfg[key], pipeline, (f'{place}.pipeline',))
        evaluators = cfg.get(f'{stage}_evaluator')
        for number, part in enumerate(parts_of(evaluators)):
            is_coco = str(part.get('type')).endswith('CocoMetric')
            held, file = part.get('ann_file'), dataset.get('ann_file')
            if is_coco and held and file:
                several = not isinstance(evaluators, dict)
                key = f'{stage}_evaluator' + several * f'.{number}'
                said = os.path.join(dataset.get('data_root') or '', file)
                sources = f'{place}.ann_file', f'{place}.data_root'
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
        written, *sources = (
            max((n for n, f in enumerate(files) if key in f.keys), default=-1)
            for key in (one.key, *one.sources)
        )
        if one.held == one.said or max(sources) > written >= 0:
            keys.append(one.key)
    return keys


def renew(cfg: Config, keys: Iterable[str]) -> None:
    """Let keys repeat what the data set says now.

    Args:
        cfg (Config): Changed in place.
        keys (Iterable[str]): Some of :func:`up_to_date`.
    """
    said = {one.key: copy.deepcopy(one.said) for one in copies(cfg)}
    cfg.merge_from_dict({key: said[key] for key in keys if key in said})


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
