# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Run a function in several gloo processes."""

import contextlib
import itertools
import multiprocessing
import os
import pickle
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed
import torch.multiprocessing

from .speed import spare_work

# Importing OpenMMLab takes seconds, so one process imports it, and all others
# are forked from that process, which has never started a thread.
multiprocessing.set_forkserver_preload(
    [
        'mmmoca.import_mmpretrain',
        'mmmoca.models',
        'mmmoca.engine',
        'mmmoca.datasets',
    ]
)


def run_processes(function, world_size, *args):
    """Call a module's function in each process; return the results by rank.

    If there is only one process, it is this one.
    """
    if world_size == 1:
        return [function(*args)]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            _run,
            (world_size, folder, function, args),
            world_size,
            start_method='forkserver',
        )
        return [
            pickle.loads(Path(folder, str(rank)).read_bytes())
            for rank in range(world_size)
        ]


# The ports are below those that the system hands out. Otherwise, the system
# could give a free port to another program before the test uses it. Each
# process has 20 ports.
_PORTS = itertools.count(20000 + 20 * (os.getpid() % 600))


def free_port():
    """Return a free TCP port, a different one in each call."""
    for port in _PORTS:
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(('', port))
            return port
    raise AssertionError('unreachable: the ports never end')


def _run(rank, world_size, folder, function, args):
    spare_work()
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
    )
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        'gloo',
        init_method=f'file://{folder}/store',
        rank=rank,
        world_size=world_size,
    )
    Path(folder, str(rank)).write_bytes(pickle.dumps(function(*args)))
    torch.distributed.destroy_process_group()
