# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What one process finds out for all."""

from collections.abc import Callable
from typing import Any

from mmengine.dist import broadcast_object_list, is_main_process

__all__ = ['on_main_process']


def on_main_process(function: Callable, *args) -> Any:
    """Call a function on the main process, for all of them.

    All must stop where it fails: one that goes on would wait for the others
    forever.

    Args:
        function (Callable): Looks at files, say, and changes no state of a
            process. All processes must get here.
        *args: Its arguments.

    Returns:
        Any: What it returned, on every process.

    Raises:
        Exception: What it raised, on every process.
    """
    outcome = [None]
    if is_main_process():
        try:
            outcome = [(function(*args), None)]
        except Exception as error:
            outcome = [(None, error)]
    broadcast_object_list(outcome)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
