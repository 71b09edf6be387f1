# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Things that may fail without stopping the others."""

import gc
import traceback
from collections.abc import Callable

import torch

from gpu_figures import Failure

OUT_OF_MEMORY = 'out of memory'


def release() -> None:
    """Give back what is left of what was measured before."""
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def attempt(what: str, function: Callable[[], object]) -> object:
    """What a function returns, or how it failed: for the others go on.

    Returns:
        object: Its result, ``OUT_OF_MEMORY``, or a :class:`Failure`.
    """
    release()
    try:
        return function()
    except torch.OutOfMemoryError:
        return OUT_OF_MEMORY
    except Exception as error:
        traceback.print_exc()
        first = str(error).strip().split('\n')[0]
        return Failure(what, f'{type(error).__name__}: {first}')
