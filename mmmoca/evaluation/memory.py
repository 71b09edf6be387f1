# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The memory and processors that this process may use."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from mmengine.dist import get_world_size

# The folder of Linux's control groups, and the file that names our own group.
GROUPS, OWN = Path('/sys/fs/cgroup'), Path('/proc/self/cgroup')


def group_limits(name: str) -> list[list[int]]:
    """Return the limits of this process's control group and its ancestors.

    Slurm and systemd set limits for groups below the machine's root group. A
    container sets limits for a group that is the root group inside it. All of
    these limits apply.

    Args:
        name (str): 'memory.max' or 'cpu.max'. A limit of the latter has two
            numbers: a quota and its period.

    Returns:
        list[list[int]]: The numbers of each limit; empty if there is none.
    """
    text = OWN.read_text() if OWN.is_file() else ''
    own = Path('/', text.rpartition('::')[2].strip())
    files = [Path(f'{GROUPS}{g}', name) for g in (own, *own.parents)]
    texts = [file.read_text() for file in files if file.is_file()]
    return [[*map(int, t.split())] for t in texts if 'max' not in t]


@contextmanager
def shared_memory() -> Iterator[None]:
    """Add advice to the error of loader workers that lack shared memory."""
    try:
        yield
    except RuntimeError as error:
        if 'shared memory' in f'{error} {error.__cause__}':
            error.args = (
                f'{error}. Set num_workers=0 in the loaders, or give the '
                'container more shared memory, for example with '
                '--shm-size=8g',
            )
        raise


def check_memory(
    what: str, number: int, each: float, device: torch.device | str = 'cpu'
) -> None:
    """Raise if the memory of this rank cannot hold a number of features.

    Args:
        what (str): What the features are, for the message.
        number (int): Number of features.
        each (float): Bytes per feature on this rank.
        device (torch.device | str): Where the features will be stored.
            Defaults to the CPU, whose memory the ranks share evenly.

    Raises:
        ValueError: If they do not fit. The message names the largest number
            that fits.
    """
    if torch.device(device).type == 'cuda':
        memory = torch.cuda.mem_get_info(device)[0]
    else:
        memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
        memory = min([memory, *(n for (n,) in group_limits('memory.max'))])
        memory //= get_world_size()
    if number * each > memory:
        raise ValueError(
            f'{number} {what} need {number * each / 2**30:.1f} GiB, but this '
            f'process can have {memory / 2**30:.1f} GiB: use at most '
            f'{int(memory / each)}'
        )
