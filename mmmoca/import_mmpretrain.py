# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Imports all of mmpretrain that this package uses, without its messages.

Modules that take parts of mmpretrain import this one first.
"""

from .requirements import import_quietly

import_quietly('mmpretrain.datasets', 'mmpretrain.models')
