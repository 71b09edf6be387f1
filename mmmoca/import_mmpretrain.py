# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Imports the parts of mmpretrain that this package uses.

mmpretrain's messages are suppressed. A module that imports from mmpretrain
imports this one first.
"""

from .requirements import import_quietly

import_quietly('mmpretrain.datasets', 'mmpretrain.models')
