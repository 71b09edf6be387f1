# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What one process finds out for all, and how long they wait."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from mmengine.dist import broadcast_object_list, is_main_process

__all__ = ['collective_timeout', 'on_main_process']


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


def collective_timeout(cfg: Mapping) -> timedelta | None:
    """How long a config has processes wait for one another.

    Args:
        cfg (Mapping): The config of a run.

    Returns:
        timedelta | None: ``env_cfg.dist_cfg.timeout``, which is in seconds;
        None for PyTorch's, 10 minutes on GPUs and 30 without.
    """
    seconds = cfg.get('env_cfg', {}).get('dist_cfg', {}).get('timeout')
    return None if seconds is None else timedelta(seconds=seconds)
