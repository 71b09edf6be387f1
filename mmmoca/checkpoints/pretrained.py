# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checking ``init_cfg=dict(type='Pretrained', ...)`` before it is used."""

import re
from collections.abc import Iterator, Mapping

from mmengine.model import PretrainedInit
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor, nn

from .fitting import after_prefix, check_fit
from .reading import CheckpointError, listed
from .scheme import guarded

__all__ = ['check_pretrained_inits']

_WRAPPER = re.compile(r'^module\.')


def check_pretrained_inits(model: nn.Module) -> list[str]:
    """Check what each ``Pretrained`` init will load, and guard how.

    MMEngine loads what matches and only logs the rest, so that a wrong
    prefix leaves a module untrained without a word. After this it reads the
    files with our reader.

    Args:
        model (nn.Module): A model before its ``init_weights``. Modules that
            were initialised already are left alone.

    Returns:
        List[str]: A line for each such module: how many of its names match.

    Raises:
        CheckpointError: If nothing matches, shapes differ, or a ViT would
            compute something else than the one that was saved.
    """
    files: dict[str, dict] = {}
    reports = []
    for name, module, init in _pretrained_inits(model):
        path = init['checkpoint']
        init['checkpoint'] = guarded(path)
        if path not in files:
            files[path] = CheckpointLoader.load_checkpoint(guarded(path))
        role = f'Pretrained init of {name or type(model).__name__} ({path})'
        reports.append(_check(role, module, files[path], init.get('prefix')))
    return reports


def _check(
    role: str, module: nn.Module, checkpoint: dict, prefix: str | None
) -> str:
    state = {
        _WRAPPER.sub('', name): value
        for name, value in checkpoint.get('state_dict', checkpoint).items()
        if isinstance(value, Tensor)
    }
    start = f'{prefix.rstrip(".")}.' if prefix else ''
    part = after_prefix(state, start)
    own = module.state_dict()
    if not part.keys() & own.keys():
        raise CheckpointError(
            f'{role} matches none of its {len(own)} names: '
            + _advice(state, own)
        )
    report = check_fit(module, part, checkpoint.get('meta'), role)
    if start == 'backbone.' and 'teacher.cls_token' in state:
        report += (
            ". This is a pretraining run's student; prefix='teacher.' is the "
            'teacher, which the paper evaluates'
        )
    return report


def _pretrained_inits(
    model: nn.Module,
) -> Iterator[tuple[str, nn.Module, dict]]:
    for name, module in model.named_modules():
        if getattr(module, 'is_init', False):
            continue
        init_cfg = getattr(module, 'init_cfg', None) or []
        for init in [init_cfg] if isinstance(init_cfg, dict) else init_cfg:
            if init['type'] in ('Pretrained', PretrainedInit):
                yield name, module, init


def _advice(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """What to write where a prefix matched nothing."""
    has = sorted({f'{name.split(".")[0]}.' for name in state})
    first = next(iter(own))
    prefixes = [
        name.removesuffix(first)
        for name in state
        if f'.{name}'.endswith(f'.{first}')
    ]
    # The teacher is what to load where both fit.
    prefixes.sort(key=lambda prefix: ('teacher' not in prefix, prefix))
    advice = ' or '.join(f'prefix={prefix or None!r}' for prefix in prefixes)
    found = f'the file has {listed(has)}; ' if has else ''
    return f'{found}write ' + (
        advice
        or "checkpoint='mmmoca-teacher://FILE', prefix='backbone.' if it has "
        'a ViT'
    )
