# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Exports encoders to the formats of other libraries."""

from .folder import FORMATS, check_target, export_encoder

__all__ = ['FORMATS', 'check_target', 'export_encoder']
