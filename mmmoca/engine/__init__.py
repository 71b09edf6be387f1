# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Runs. Importing this package does not load PyTorch."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module(f'{__name__}.parts'), name)
