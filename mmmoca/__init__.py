# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MOCA: self-supervised ViTs by masked online codebook assignments.

A plugin of OpenMMLab. Importing it checks the versions of what it stands on
and tells MMEngine where ``_base_ = 'mmmoca::...'`` finds our configs. It
changes nothing else of the process, and does not load PyTorch. No class is
registered here: see :mod:`mmmoca.registry`.

:func:`mmmoca.load` and :func:`mmmoca.pretrain` import what they need when they
are asked for.
"""

from typing import Any

from .stack import check_requirements, import_quietly
from .version import __version__

__all__ = ['__version__', 'load', 'pretrain']

check_requirements()

from mmengine.config.utils import MODULE2PACKAGE  # noqa: E402

# MMEngine takes the name of a distribution and looks for its files in
# site-packages, where those of an editable install are not. A submodule is no
# distribution, so that MMEngine takes the folder it lies in.
MODULE2PACKAGE['mmmoca'] = 'mmmoca.version'


def __getattr__(name: str) -> Any:
    if name not in ('load', 'pretrain'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import_quietly('mmpretrain.datasets')
    from . import apis

    return getattr(apis, name)
