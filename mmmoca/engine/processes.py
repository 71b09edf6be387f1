# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What one process finds out for all, and which one is lost."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from mmengine.dist import (
    broadcast_object_list,
    get_rank,
    get_world_size,
    is_main_process,
)
from torch import distributed

__all__ = ['collective_timeout', 'naming_the_silent', 'on_main_process']


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
    dist_cfg = (cfg.get('env_cfg') or {}).get('dist_cfg') or {}
    seconds = dist_cfg.get('timeout')
    return None if seconds is None else timedelta(seconds=seconds)


@contextmanager
def naming_the_silent(seconds: float = 10) -> Iterator[None]:
    """Say which processes did not answer where waiting for them timed out.

    Args:
        seconds (float): How long the others may take to get here, too.

    Raises:
        RuntimeError: In the place of gloo's, which names no process.
    """
    try:
        yield
    except RuntimeError as error:
        if get_world_size() == 1 or 'Timed out waiting' not in str(error):
            raise
        silent = ', '.join(map(str, _silent(seconds)))
        raise RuntimeError(
            f'process {silent or "?"} did not answer within '
            'env_cfg.dist_cfg.timeout: look at its machine, memory and '
            'disks, or allow more seconds by that key, and go on by --resume'
        ) from error


def _silent(seconds: float) -> list[int]:
    """Ranks that do not note in the store that they are alive."""
    store = distributed.distributed_c10d._get_default_store()
    keys = [f'mmmoca/alive/{rank}' for rank in range(get_world_size())]
    store.set(keys[get_rank()], '')
    end = time.monotonic() + seconds
    while time.monotonic() < end and not store.check(keys):
        time.sleep(0.1)
    return [rank for rank, key in enumerate(keys) if not store.check([key])]
