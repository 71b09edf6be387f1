# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pure functions as one kernel, where the device has a compiler."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from mmengine.logging import print_log
from torch import Tensor

__all__ = ['fused']


def fused(function: Callable, tensor: Tensor) -> Callable:
    """The function, compiled if the tensor is on a GPU.

    PyTorch's eager mode reads and writes the memory for each operation anew.
    Compiled, those of one pass over the rows become one kernel. Where that
    fails (Triton is missing, say), the function is called as it is, and a
    warning says why.

    Args:
        function (Callable): Of tensors, without side effects.
        tensor (Tensor): One of its arguments.

    Returns:
        Callable: Gives the same, but for rounding.
    """
    # Subclasses are for those who look what an operation does.
    if torch.compiler.is_compiling() or type(tensor) is not Tensor:
        return function
    return _compiled(function) if tensor.device.type == 'cuda' else function


@functools.cache
def _compiled(function: Callable) -> Callable:
    compiled = torch.compile(function)
    works = True

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        nonlocal works
        if works:
            try:
                return compiled(*args)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # each compiler has errors of its own
                works = False
                print_log(
                    f'{function.__name__} could not be compiled and runs '
                    f'without: {error}',
                    logger='current',
                    level=logging.WARNING,
                )
        return function(*args)

    return call
