# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What real processes send and keep, on gloo and the CPU of this machine."""

import ctypes
import gc
import multiprocessing
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import MODELS
from mmengine.runner import FlexibleRunner, Runner
from PIL import Image
from torch import nn

import mmmoca  # noqa: F401  registers the model

# One process imports OpenMMLab, all others are forked from it.
multiprocessing.set_forkserver_preload(
    ['mmpretrain.models', 'mmmoca.models', 'mmmoca.engine', 'mmmoca.datasets']
)
DEMO = Path(__file__).parents[2] / 'configs/demo/moca_vit-tiny_textures.py'
STEPS, WARM_UP, BATCH = 9, 4, 8
# Much larger than all that a step needs besides.
LARGE = dict(
    embed_dims=512, num_layers=8, num_heads=8, feedforward_channels=2048
)
_TCP_INFO_BYTES_SENT = 200  # of struct tcp_info, Linux 4.19 and later


def sent_by_this_process() -> int:
    """Bytes sent by this process's open TCP sockets, as the kernel counts."""
    total = 0
    for entry in Path('/proc/self/fd').iterdir():
        if '/socket:[' not in os.path.realpath(entry):
            continue
        with socket.socket(fileno=os.dup(int(entry.name))) as copy:
            internet = copy.family in (socket.AF_INET, socket.AF_INET6)
            if internet and copy.type == socket.SOCK_STREAM:
                info = copy.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_INFO, 256
                )
                total += struct.unpack_from('Q', info, _TCP_INFO_BYTES_SENT)[0]
    return total


def measure_traffic(ranks: int, sharded: bool) -> tuple[nn.Module, float]:
    """The demo's model, and the bytes that a process sends in its step."""
    measured = _run(ranks, sharded, {}, _Traffic)
    return MODELS.build(Config.fromfile(DEMO).model), measured


def measure_memory(ranks: int, sharded: bool) -> tuple[nn.Module, float]:
    """A larger network, and the bytes that it adds to a process."""
    options = {'model.backbone.arch': LARGE}
    cfg = Config.fromfile(DEMO)
    cfg.merge_from_dict(options)
    return MODELS.build(cfg.model), _run(ranks, sharded, options, _Memory)


class _Traffic(Hook):
    """Bytes sent in a step after the first ones, which set up more."""

    priority = 'LOWEST'

    def after_train_iter(self, runner, *args, **kwargs) -> None:
        if runner.iter + 1 == WARM_UP:
            self.start = sent_by_this_process()
        if runner.iter + 1 == STEPS:
            sent = sent_by_this_process() - self.start
            self.result = sent / (STEPS - WARM_UP)


class _Memory(Hook):
    """Resident bytes after the steps, less those before the model."""

    priority = 'LOWEST'

    def __init__(self) -> None:
        self.start = _resident()

    def after_train_iter(self, runner, *args, **kwargs) -> None:
        if runner.iter + 1 == STEPS:
            self.result = _resident() - self.start


def _resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE')


def _run(ranks: int, sharded: bool, options: dict, hook: Callable) -> float:
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / 'train'
        images.mkdir()
        rng = np.random.default_rng(0)
        for index in range(BATCH):
            noise = rng.integers(0, 256, (60, 60, 3), dtype=np.uint8)
            Image.fromarray(noise).save(images / f'{index}.jpg')
        torch.multiprocessing.start_processes(
            _train,
            (ranks, folder, sharded, options, hook),
            ranks,
            start_method='forkserver',
        )
        results = [
            float(Path(folder, f'{rank}').read_text()) for rank in range(ranks)
        ]
    return sum(results) / ranks


def _train(
    rank: int,
    ranks: int,
    folder: str,
    sharded: bool,
    options: dict,
    hook: Callable,
) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(ranks),
        CUDA_VISIBLE_DEVICES='',
    )
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        'gloo',
        init_method=f'file://{folder}/store',
        rank=rank,
        world_size=ranks,
    )
    if hook is _Memory:
        # What the libraries take when they are first used.
        _runner(folder, ranks, sharded, {}).train()
    watcher = hook()
    runner = _runner(folder, ranks, sharded, options)
    runner.register_hook(watcher)
    runner.train()
    Path(folder, f'{rank}').write_text(str(watcher.result))
    torch.distributed.destroy_process_group()


def _runner(
    folder: str, ranks: int, sharded: bool, options: dict
) -> Runner | FlexibleRunner:
    cfg = Config.fromfile(DEMO)
    cfg.merge_from_dict(
        {
            'work_dir': folder,
            'experiment_name': f'{len(options)}',
            'train_dataloader.dataset.data_root': folder,
            'train_dataloader.batch_size': BATCH // ranks,
            'train_dataloader.num_workers': 0,
            'train_dataloader.persistent_workers': False,
            'train_cfg.max_iters': STEPS,
            'default_hooks.checkpoint.interval': 1000,
            'default_hooks.checkpoint.save_last': False,
            'optim_wrapper.dtype': 'float32',
            'log_level': 'ERROR',
            'launcher': 'pytorch' if ranks > 1 else 'none',
            'env_cfg.dist_cfg.backend': 'gloo',
        }
        | {
            f'{split}_{part}': None
            for split in ('val', 'test')
            for part in ('cfg', 'dataloader', 'evaluator')
        }
        | options
    )
    if sharded:
        cfg.strategy = dict(type='mmmoca.MOCAFSDPStrategy')
        return FlexibleRunner.from_cfg(cfg)
    if ranks > 1:
        cfg.model_wrapper_cfg = dict(
            type='MMDistributedDataParallel',
            device_ids=None,
            broadcast_buffers=False,
        )
    return Runner.from_cfg(cfg)
