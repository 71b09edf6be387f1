# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MOCA: self-supervised ViTs by masked online codebook assignments.

A plugin of OpenMMLab. Importing it checks the versions of what it stands on,
makes ``_base_ = 'mmmoca::...'`` work in configs, and lets MMEngine resume
checkpoints under ``torch.load(weights_only=True)``. Nothing is registered
here: see :mod:`mmmoca.registry`.
"""

from .stack import (
    allow_checkpoint_contents,
    check_requirements,
    register_package,
)
from .version import __version__

__all__ = ['__version__']

check_requirements()
register_package()
allow_checkpoint_contents()
