# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What memory can hold, asked before it is filled."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from mmengine.dist import get_world_size

# What a container may use; 'max' for all of the machine's.
LIMIT = Path('/sys/fs/cgroup/memory.max')


@contextmanager
def shared_memory() -> Iterator[None]:
    """Say what helps where the workers of a loader have no shared memory."""
    try:
        yield
    except RuntimeError as error:
        if 'shared memory' in f'{error} {error.__cause__}':
            error.args = (
                f'{error}. Set num_workers=0 of the loaders, or give the '
                'container more shared memory, as by --shm-size=8g',
            )
        raise


def check_memory(
    what: str, number: int, each: float, device: torch.device | str = 'cpu'
) -> None:
    """Refuse features that the memory of this rank cannot hold.

    Args:
        what (str): What they are, for the message.
        number (int): How many there are.
        each (float): Bytes of each on this rank.
        device (torch.device | str): Where they will lie. Defaults to the
            CPU, whose memory the ranks share evenly.

    Raises:
        ValueError: Names the largest number that fits.
    """
    if torch.device(device).type == 'cuda':
        memory = torch.cuda.mem_get_info(device)[0]
    else:
        memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
        limit = LIMIT.read_text().strip() if LIMIT.is_file() else 'max'
        memory = memory if limit == 'max' else min(memory, int(limit))
        memory //= get_world_size()
    if number * each > memory:
        raise ValueError(
            f'{number} {what} need {number * each / 2**30:.1f} GiB of the '
            f'{memory / 2**30:.1f} GiB that are there: take at most '
            f'{int(memory / each)}'
        )
