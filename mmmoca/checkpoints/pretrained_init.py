# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks what each ``Pretrained`` init of a model will load."""

import functools

from mmengine.model import PretrainedInit, initialize
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor, nn

from mmmoca.messages import listed

from .errors import CheckpointError
from .fit import (
    TEACHER_CLS,
    after_prefix,
    check_fit,
    loaded_names,
    without_final_norm,
)
from .record import record_of
from .schemes import ReadAddress, guarded
from .start import take_backbone


def check_pretrained_inits(model: nn.Module) -> list[tuple[str, str, dict]]:
    """Check what each ``init_cfg=dict(type='Pretrained', ...)`` will load.

    The weights that were read stay in memory until MMEngine loads them.
    The ``init_cfg`` of a module is rewritten, because many classes of models
    read it themselves. They would ignore a prefix. They would also overwrite
    the loaded weights with their own initialisation if ``init_cfg`` is a list,
    or has the class ``PretrainedInit`` as its type.

    Args:
        model (nn.Module): A model before its ``init_weights``. Modules that
            are already initialised are skipped.

    Returns:
        list[tuple[str, str, dict]]: For each Pretrained init: a report of how
        many names match, a warning or '', and the record of the file.

    Raises:
        CheckpointError: If no name matches, or as in :func:`check_fit`.
    """
    load = functools.cache(CheckpointLoader.load_checkpoint)
    reports = []
    for name, module in model.named_modules():
        inits = _inits(module)
        pretrained = [init for init in inits if _is_pretrained(init['type'])]
        if getattr(module, 'is_init', False) or not pretrained:
            continue
        for init in pretrained:
            path, init['type'] = init['checkpoint'], 'Pretrained'
            role = (
                f'Pretrained init of {name or type(module).__name__} ({path})'
            )
            checkpoint = load(guarded(path))
            prefix, changes = init.pop('prefix', None), []
            # `pretrained=FILE` gives mmpretrain's classifiers an init of the
            # whole model. Unless the file is of the same model, only the
            # encoder in it is loaded.
            if not name and not prefix:
                checkpoint = dict(checkpoint)
                changes = take_backbone(checkpoint, module, path)
            report, note, part = _check_init(role, module, checkpoint, prefix)
            loaded = without_final_norm(dict(state_dict=part), module, '')
            init['checkpoint'] = ReadAddress(guarded(path), loaded)
            record = record_of(checkpoint.get('meta'))
            reports.append(('; '.join([report, *changes]), note, record))
        if len(pretrained) == 1:
            # Many classes keep loaded weights only if init_cfg is a dict with
            # the type 'Pretrained', not a list.
            initialize(module, [i for i in inits if i not in pretrained])
            (module.init_cfg,) = pretrained
    return reports


def starts_pretrained(model: nn.Module) -> bool:
    """Return whether any part of a model has a Pretrained init."""
    inits = [init for module in model.modules() for init in _inits(module)]
    return any(_is_pretrained(init['type']) for init in inits)


def _inits(module: nn.Module) -> list[dict]:
    inits = getattr(module, 'init_cfg', None) or []
    inits = [inits] if isinstance(inits, dict) else inits
    for init in inits:
        pretrained = _is_pretrained(init.get('type'))
        lacking = 'checkpoint' if pretrained else 'type'
        if lacking not in init:
            raise CheckpointError(
                f'init_cfg of {type(module).__name__} has no {lacking}: '
                "write init_cfg=dict(type='Pretrained', checkpoint=FILE), or "
                'start pretraining with --init FILE'
            )
    return inits


def _is_pretrained(kind: str | type | None) -> bool:
    # The name may have a scope, as in 'mmengine.Pretrained'.
    return kind is PretrainedInit or str(kind).split('.')[-1] == 'Pretrained'


def _check_init(
    role: str, module: nn.Module, checkpoint: dict, prefix: str | None
) -> tuple[str, str, dict[str, Tensor]]:
    """Return the report of an init, a warning or '', and its weights."""
    state = {
        name: value
        for name, value in loaded_names(checkpoint).items()
        if isinstance(value, Tensor)
    }
    start = f'{prefix.rstrip(".")}.' if prefix else ''
    part = after_prefix(state, start)
    if not part.keys() & module.state_dict().keys():
        has = dict.fromkeys(f'{name.split(".")[0]}.' for name in state)
        raise CheckpointError(
            f'no tensor of the file fits the {role}. The names in the file '
            f'begin with {listed(has)}; choose the prefix of the encoder, '
            "such as prefix='teacher.' (None for no prefix). If the file has "
            "a ViT, you can write checkpoint='mmmoca-teacher://FILE' and "
            "prefix='backbone.' instead"
        )
    report = check_fit(module, part, checkpoint.get('meta'), role)
    note = ''
    if start == 'backbone.' and TEACHER_CLS in state:
        note = (
            "this is a pretraining run's student; prefix='teacher.' loads the "
            'teacher, which the paper evaluates'
        )
    return report, note, part
