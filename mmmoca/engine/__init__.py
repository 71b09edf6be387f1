# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads configs and runs them: hooks, loops, optimisers and schedules.

Importing this package does not load PyTorch.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module(f'{__name__}.parts'), name)
