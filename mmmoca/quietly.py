# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Imports all of mmpretrain that this package uses, without its messages.

To be imported before what takes parts of mmpretrain.
"""

from .requirements import import_quietly

import_quietly('mmpretrain.datasets', 'mmpretrain.models')
