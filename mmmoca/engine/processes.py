# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Starting the processes of a run, and sharing results."""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from mmengine.config import Config

# Variables of each process of those that were started together.
_TOGETHER = dict(
    pytorch=('LOCAL_RANK', 'WORLD_SIZE'),
    slurm=('SLURM_STEP_ID', 'SLURM_STEP_NUM_TASKS'),
    mpi=('OMPI_COMM_WORLD_LOCAL_RANK', 'OMPI_COMM_WORLD_SIZE'),
)


def check_launcher(launcher: str) -> None:
    """Refuse processes that would each do the whole run.

    Args:
        launcher (str): What is said to have started them, or 'none'.

    Raises:
        RuntimeError: If it is 'none', and there are several of them.
    """
    for name, (place, number) in _TOGETHER.items():
        several = place in os.environ and os.environ.get(number, '1') != '1'
        if launcher == 'none' and several:
            raise RuntimeError(
                f'{os.environ[number]} processes were started, and each would '
                f'do the whole run: add --launcher {name} to the command '
                '(mmmoca.pretrain is for one process)'
            )


def started_processes(cfg: Mapping) -> int:
    """Return the number of processes that a launcher has started.

    Args:
        cfg (Mapping): The config of a run.

    Returns:
        int: 1 without a launcher.
    """
    number = _TOGETHER.get(cfg.get('launcher'), ('', ''))[1]
    return int(os.environ.get(number, 1))


def join_processes(cfg: Config) -> None:
    """Join the processes that the launcher of a config has started.

    Args:
        cfg (Config): The config of a run. On processes without a GPU its
            backend becomes gloo.

    Raises:
        RuntimeError: If several processes on CPUs were not started by
            torchrun, or would share an Apple GPU.
    """
    from mmengine.device import get_device
    from mmengine.dist import init_dist, is_distributed
    from torch import distributed

    launcher = cfg.get('launcher', 'none')
    if launcher == 'none' or is_distributed():
        return
    if get_device() not in ('cpu', 'mps'):
        init_dist(launcher, **cfg.get('env_cfg', {}).get('dist_cfg', {}))
        return
    if (launcher, get_device()) != ('pytorch', 'cpu'):
        raise RuntimeError(
            f'--launcher {launcher} needs NVIDIA GPUs: on CPUs start the '
            'processes by tools/dist_train.sh, elsewhere leave it out'
        )
    # MMEngine's initialisation selects a GPU for any backend.
    distributed.init_process_group('gloo', timeout=collective_timeout(cfg))
    cfg.merge_from_dict({'env_cfg.dist_cfg.backend': 'gloo'})


def on_main_process(function: Callable, *args) -> Any:
    """Call a function on the main process and share its outcome.

    An error is raised on all processes. Otherwise the others would wait for
    the main process forever.

    Args:
        function (Callable): Reads files, for example, and changes no state of
            the process. All processes must call this.
        *args: Its arguments.

    Returns:
        Any: Its result, on every process.

    Raises:
        Exception: Its error, on every process.
    """
    from mmengine.dist import broadcast_object_list, is_main_process

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
    """Return how long the processes of a config wait for one another.

    Args:
        cfg (Mapping): The config of a run.

    Returns:
        timedelta | None: ``env_cfg.dist_cfg.timeout``, which is in seconds;
        None for PyTorch's, 10 minutes on GPUs and 30 without.
    """
    seconds = cfg.get('env_cfg', {}).get('dist_cfg', {}).get('timeout')
    return None if seconds is None else timedelta(seconds=seconds)
