# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MOCA: self-supervised ViTs by masked online codebook assignments.

A plugin for OpenMMLab. Importing it does three things: it checks the versions
of its requirements; it tells MMEngine where to find the configs that
``_base_ = 'mmmoca::...'`` names; and, if the current user ID has no name, it
sets the folder for PyTorch's compiled code. The import does not load PyTorch.
:mod:`mmmoca.registry` registers the classes on first use.

:func:`mmmoca.load`, :func:`mmmoca.look` and :func:`mmmoca.pretrain` are
imported on first use.
"""

from typing import Any

from .requirements import check_requirements, name_compile_cache
from .version import __version__

__all__ = ['__version__', 'load', 'look', 'pretrain']

check_requirements()
name_compile_cache()

from mmengine.config.utils import MODULE2PACKAGE  # noqa: E402

# If this value is the name of a distribution, MMEngine searches site-packages,
# where an editable install has no configs. If it is a submodule, MMEngine
# searches the folder of that submodule.
MODULE2PACKAGE['mmmoca'] = 'mmmoca.version'


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from . import apis

    return getattr(apis, name)
