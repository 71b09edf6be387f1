# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Preserves the random states of code that calls this package."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def callers_numbers() -> Iterator[None]:
    """Restore the caller's random states after code that sets seeds."""
    python, numpy = random.getstate(), np.random.get_state()
    # A run seeds all GPUs, even if it uses only the first.
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
