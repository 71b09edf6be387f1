# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Imports mmpretrain without its messages.

To be imported before what takes parts of mmpretrain.
"""

from .requirements import import_mmpretrain

import_mmpretrain()
