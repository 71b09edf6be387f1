# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MOCA: self-supervised ViTs by masked online codebook assignments.

A plugin of OpenMMLab. Importing it checks the versions of what it stands on,
makes ``_base_ = 'mmmoca::...'`` work in configs, tells mmpretrain the names of
our models, and lets MMEngine resume checkpoints under
``torch.load(weights_only=True)``. No class is registered here: see
:mod:`mmmoca.registry`.
"""

from .hub import register_configs, register_models
from .stack import allow_checkpoint_contents, check_requirements
from .version import __version__

__all__ = ['__version__']

check_requirements()
register_configs()
register_models()
allow_checkpoint_contents()
