# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Version of the package."""

__version__ = '0.1.0'
