# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The random numbers of whoever calls this package."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def callers_numbers() -> Iterator[None]:
    """Put the random numbers of the caller back, which others seed."""
    python, numpy = random.getstate(), np.random.get_state()
    # A run uses the first device, if there is one, and seeds all.
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
