# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Run a function in several gloo processes."""

import multiprocessing
import os
import socket
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

# Importing OpenMMLab takes seconds: one process does it, and all others are
# forked from that one, which never started a thread.
multiprocessing.set_forkserver_preload(
    ['mmpretrain.models', 'mmmoca.models', 'mmmoca.engine', 'mmmoca.datasets']
)


def run_processes(function, world_size, *args):
    """Call ``function(*args)`` in each process; the results by rank.

    Args:
        function (Callable): A function of a module, picklable.
        world_size (int): Processes.
        *args: Picklable arguments.

    Returns:
        list: What each rank's call returned.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            _run,
            (world_size, port, folder, function, args),
            world_size,
            start_method='forkserver',
        )
        return [
            torch.load(f'{folder}/{rank}.pt', weights_only=False)
            for rank in range(world_size)
        ]


def free_port():
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return free.getsockname()[1]


def _run(rank, world_size, port, folder, function, args):
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        MASTER_ADDR='127.0.0.1',
        MASTER_PORT=str(port),
    )
    torch.set_num_threads(1)
    torch.distributed.init_process_group('gloo')
    torch.save(function(*args), f'{folder}/{rank}.pt')
    torch.distributed.destroy_process_group()
