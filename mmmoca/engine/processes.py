# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Joins the processes of a run, and shares results between them."""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from mmengine.config import Config

# For each launcher, two environment variables that it sets in the processes it
# starts: one that shows which launcher it is, and the number of processes.
_TOGETHER = dict(
    pytorch=('LOCAL_RANK', 'WORLD_SIZE'),
    slurm=('SLURM_STEP_ID', 'SLURM_STEP_NUM_TASKS'),
    mpi=('OMPI_COMM_WORLD_LOCAL_RANK', 'OMPI_COMM_WORLD_SIZE'),
)


def check_launcher(launcher: str) -> None:
    """Refuse processes that would each do the whole run.

    Args:
        launcher (str): The launcher that the user names, or 'none'.

    Raises:
        RuntimeError: If it is 'none' although a launcher has started several
            processes.
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
        cfg (Mapping): The config of a run. ``assumed_processes`` is the number
            that a dry run assumes instead.

    Returns:
        int: The number of processes; 1 without a launcher.
    """
    if 'assumed_processes' in cfg:
        return cfg['assumed_processes']
    number = _TOGETHER.get(cfg.get('launcher'), ('', ''))[1]
    return int(os.environ.get(number, 1))


def join_processes(cfg: Config) -> None:
    """Join the processes that the launcher of a config has started.

    Args:
        cfg (Config): The config of a run. Without GPUs, its
            ``env_cfg.dist_cfg.backend`` is changed to 'gloo'.

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
            'processes with tools/dist_train.sh, on an Apple GPU leave '
            '--launcher out'
        )
    # MMEngine's initialisation selects a GPU for any backend.
    distributed.init_process_group('gloo', timeout=collective_timeout(cfg))
    cfg.merge_from_dict({'env_cfg.dist_cfg.backend': 'gloo'})


def on_main_process(function: Callable, *args) -> Any:
    """Call a function on the main process and share its outcome.

    All processes must call this. An error is raised on all of them: if it were
    raised on the main process alone, the others would wait forever.

    Args:
        function (Callable): The function, which may read files, for example.
            It must not change what has to be the same on all processes, such
            as the state of a random generator.
        *args: Arguments of the function.

    Returns:
        Any: The result of the function, on every process.

    Raises:
        Exception: The error of the function, on every process.
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
    """Return how long the processes of a run wait for one another.

    Args:
        cfg (Mapping): The config of a run.

    Returns:
        timedelta | None: ``env_cfg.dist_cfg.timeout``, which is in seconds;
        None if it is not set. PyTorch then waits 10 minutes with GPUs, and 30
        minutes without.
    """
    seconds = cfg.get('env_cfg', {}).get('dist_cfg', {}).get('timeout')
    return None if seconds is None else timedelta(seconds=seconds)
