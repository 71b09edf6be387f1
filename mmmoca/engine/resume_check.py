# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compares a resumed run with the run in its checkpoint."""

import hashlib
import itertools
import os
import re
from collections.abc import Sized

from mmengine.config import Config
from mmengine.optim import OptimWrapper, _ParamScheduler
from mmengine.runner import Runner

from mmmoca.datasets.seeding import members
from mmmoca.messages import listed

from .mmengine import loaders_by_role
from .schedulers import WarmupCosineLR
from .steps import unwrap_model

# What to do instead of a resume.
ADVICE = (
    "start from the checkpoint's weights with load_from=FILE and resume=False"
)
# Keys of a loader that are not compared here. They only change its speed,
# except batch_size, which another check compares.
_SPEED = (
    'num_workers|persistent_workers|pin_memory|prefetch_factor|timeout'
    '|batch_size'
)
# Settings that training depends on. Some of their parts are left out: rates
# (compared by `check_optimizer`), batch size and images (compared by other
# checks), and the times of validations, which do not change the training.
_TRAINS = re.compile(
    r'(model|optim_wrapper|param_scheduler|train_cfg|custom_hooks|compile'
    r'|data_preprocessor|default_hooks\.(teacher_ema|codebook)'
    r'|train_dataloader)'
    rf'\b(?!\.(optimizer|paramwise_cfg|{_SPEED})\b|\.(val|dynamic)_'
    r'|.*\.(init_cfg|data_root|data_prefix|ann_file|backend_args)\b)'
)
# Settings that the metrics of validation depend on.
_MEASURES = re.compile(
    r'(val_cfg|val_evaluator|(val_dataloader|views)\.dataset.*\bpipeline)\b'
    rf'(?!.*\bdataset\.(?!(dataset|pipeline)\b)|.*\.({_SPEED}|baselines|fp16'
    r'|data_root|backend_args|skip_unreadable|max_unreadable)\b)'
)


def training_settings(cfg: Config) -> dict[str, str]:
    """Return the settings of a config that training depends on.

    Args:
        cfg (Config): The config of a run.

    Returns:
        dict[str, str]: Texts of the values, by dotted keys.
    """
    return _texts(cfg.to_dict(), _TRAINS)


def validation_digest(runner: Runner) -> str:
    """Compute a digest of what the metrics of a validation depend on.

    Args:
        runner (Runner): A training run with a validation.

    Returns:
        str: The SHA-256 of the validation's settings, the number of its images
        and the names of their classes. It does not depend on where the images
        are.
    """
    config = runner.cfg.to_dict()
    if (config.get('val_cfg') or {}).get('agreement') is not None:
        config['views'] = config['train_dataloader']
    settings = sorted(_texts(config, _MEASURES).items())
    sets = [
        (role, len(loader.dataset), _classes(loader.dataset))
        for role, loader in loaders_by_role(runner).items()
        if role.startswith('val')
    ]
    return hashlib.sha256(repr((settings, sets)).encode()).hexdigest()


def _classes(dataset: Sized) -> object:
    return (getattr(dataset, 'metainfo', None) or {}).get('classes')


def _texts(config: dict, keys: re.Pattern) -> dict[str, str]:
    found, left = {}, [*config.items()]
    while left:
        key, value = left.pop()
        if isinstance(value, (list, tuple)):
            value = dict(enumerate(value))
        if isinstance(value, dict) and value:
            left += [(f'{key}.{name}', part) for name, part in value.items()]
        elif keys.match(key):
            found[key] = str(value)
    return found


def changed_settings(old: object, new: dict[str, str]) -> list[str]:
    """Compare the settings of two training runs.

    Args:
        old (object): The :func:`training_settings` in a checkpoint.
        new (dict[str, str]): The settings of the run.

    Returns:
        list[str]: ``key=value, not value`` for each setting that differs, with
        the value of ``new`` first. None stands for a value that is missing.
    """
    if not isinstance(old, dict):  # an older version wrote none
        return []
    return [
        f'{key}={new.get(key)}, not {old.get(key)}'
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def warn_of_changes(runner: Runner, old: object) -> None:
    """Warn of settings that differ from those of the checkpoint.

    MMEngine restores all of its own schedules from the checkpoint, whatever
    the config says. The schedules of this package follow the config.

    Args:
        runner (Runner): The resumed run.
        old (object): See :func:`changed_settings`.
    """
    changes = changed_settings(old, training_settings(runner.cfg))
    restored = {
        number: type(part).__name__
        for number, part in enumerate(_schedules(runner))
        if not isinstance(part, WarmupCosineLR)
    }
    stay = [c for c in changes if _place_of_schedule(c) in restored]
    if moved := [c for c in changes if c not in stay]:
        runner.logger.warning(
            'the run continues with other settings than it was saved with: '
            f'{listed(moved, 20)}'
        )
    longer = any(c.startswith('train_cfg.max_') for c in changes)
    if restored and (stay or longer):
        runner.logger.warning(
            "MMEngine's schedules continue as in the checkpoint, whatever the "
            f'config says ({listed(restored.values())}): for another '
            f'schedule, {ADVICE}'
        )


def paired_parts(runner: Runner) -> dict[str, str]:
    """Return facts about schedules and parameters that must stay the same.

    Both are restored by position, not by name: schedules by MMEngine, and the
    optimiser's states of parameters by PyTorch.

    Args:
        runner (Runner): The runner of a training run.

    Returns:
        dict[str, str]: ``schedules``, the type of each schedule and whether it
        counts epochs or iterations. If there is only one optimiser, also
        ``groups``, the SHA-256 of its parameters' names, group by group.
    """
    kinds = [
        f'{type(part).__name__} by {"epoch" if part.by_epoch else "iteration"}'
        for part in _schedules(runner)
    ]
    found = dict(schedules=', '.join(kinds))
    wrapper = runner.optim_wrapper
    if isinstance(wrapper, OptimWrapper):
        model = unwrap_model(runner.model)
        names = {id(p): name for name, p in model.named_parameters()}
        text = '\n'.join(
            ' '.join(names.get(id(p), '?') for p in group['params'])
            for group in wrapper.optimizer.param_groups
        )
        found['groups'] = hashlib.sha256(text.encode()).hexdigest()
    return found


def check_pairs(runner: Runner, meta: dict) -> None:
    """Refuse states that would go to the wrong schedules or parameters.

    Args:
        runner (Runner): The resumed run.
        meta (dict): ``meta`` of the checkpoint. It contains
            :func:`paired_parts` unless an older version has written it.

    Raises:
        ValueError: If schedules or groups of parameters differ.
    """
    parts = paired_parts(runner)
    schedules = meta.get('schedules', parts['schedules'])
    if schedules != parts['schedules']:
        raise ValueError(
            f'the run to resume had the schedules {schedules}, but this '
            f'config has {parts["schedules"]}: use the former, in that order, '
            f'or {ADVICE}'
        )
    if meta.get('groups', parts.get('groups')) != parts.get('groups'):
        raise ValueError(
            'the run to resume had other parameters in the groups of its '
            'optimiser, so states would go to the wrong parameters: use its '
            f'optim_wrapper.paramwise_cfg, or {ADVICE}'
        )


def _schedules(runner: Runner) -> list[_ParamScheduler]:
    found = runner.param_schedulers or []
    several = isinstance(found, dict)  # of several optimisers
    return [*itertools.chain(*found.values())] if several else found


def _place_of_schedule(change: str) -> int | None:
    """Return the index of the schedule that a change concerns, if any."""
    found = re.match(r'param_scheduler(?:\.(\d+))?\.', change)
    return int(found[1] or 0) if found else None


def images_digest(dataset: Sized) -> str:
    """Compute a digest of a data set's images, labels and their order.

    Names are relative to ``data_root``, so the digest does not depend on where
    the images are.

    Args:
        dataset (Sized): A data set, or a wrapper around several.

    Returns:
        str: The types of the data sets, and the SHA-256 of all names and
        labels, in order. Only digests of the same types can be compared: in
        shards, the same images have other names.
    """
    digest, kinds = hashlib.sha256(), set()
    for part in members(dataset):
        kinds.add(type(part).__name__)
        root = os.fspath(getattr(part, 'data_root', None) or '').rstrip('/')
        for index in range(len(part)):
            info = part.get_data_info(index)
            # In shards, names are URLs: a scheme precedes the root.
            name = str(info.get('img_path')).replace(f'{root}/', '/', 1)
            text = f'{name} {info.get("gt_label")}\n'
            digest.update(text.encode('utf-8', 'surrogateescape'))
    return f'{"+".join(sorted(kinds))} {digest.hexdigest()}'
