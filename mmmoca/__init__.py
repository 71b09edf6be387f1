# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MOCA: self-supervised ViTs by masked online codebook assignments.

A plugin of OpenMMLab. Importing it checks the versions of what it stands on,
makes ``_base_ = 'mmmoca::...'`` work in configs, tells mmpretrain the names of
our models, and lets MMEngine resume checkpoints under
``torch.load(weights_only=True)``. No class is registered here: see
:mod:`mmmoca.registry`.

:func:`mmmoca.load` and :func:`mmmoca.pretrain` import what they need when they
are asked for.
"""

from typing import Any

from .hub import register_configs, register_models
from .stack import (
    allow_checkpoint_contents,
    check_requirements,
    import_quietly,
)
from .version import __version__

__all__ = ['__version__', 'load', 'pretrain']

check_requirements()
register_configs()
register_models()
allow_checkpoint_contents()


def __getattr__(name: str) -> Any:
    if name not in ('load', 'pretrain'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import_quietly('mmpretrain.datasets')
    from . import apis

    return getattr(apis, name)
