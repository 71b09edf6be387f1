# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Processes as torchrun starts them."""

from collections.abc import Callable
from typing import TypeVar

from torch.distributed.launcher import LaunchConfig, elastic_launch

T = TypeVar('T')


def launch(
    function: Callable[..., T],
    processes: int,
    *args,
    start_method: str = 'spawn',
) -> list[T]:
    """Call a function in so many processes; what each returns, by rank."""
    config = LaunchConfig(
        *(1, 1, processes),
        run_id='mmmoca',
        rdzv_backend='c10d',
        rdzv_endpoint='localhost:0',
        start_method=start_method,
    )
    results = elastic_launch(config, function)(*args)
    return [results[rank] for rank in range(processes)]
