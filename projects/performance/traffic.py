# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What real processes send and keep, on gloo and the CPU of this machine."""

import ctypes
import gc
import multiprocessing
import os
import socket
import struct
import tempfile
from pathlib import Path
from unittest import mock

from mmengine.hooks import Hook
from mmengine.registry import MODELS
from torch import nn

from launching import launch
from mmmoca.engine.launch import build_runner, load_config
from pipelines import write_photos

# One process imports OpenMMLab, all others are forked from it.
multiprocessing.set_forkserver_preload(
    ['mmpretrain.models', 'mmmoca.models', 'mmmoca.engine', 'mmmoca.datasets']
)
DEMO = Path(__file__).parents[2] / 'configs/demo/moca_vit-tiny_textures.py'
STEPS, WARM_UP, BATCH = 9, 4, 8
# Much larger than all that a step needs besides.
LARGE = {'model.backbone.arch': 'deit-small'}
_TCP_INFO_BYTES_SENT = 200  # of struct tcp_info, Linux 4.19 and later


class Usage(Hook):
    """Bytes of this process.

    Attributes:
        sent (float): In a step after the first ones, which set up more.
        kept (int): Resident after the last step.
    """

    priority = 'LOWEST'

    def after_train_iter(self, runner, *args, **kwargs) -> None:
        """Look at the kernel's counters."""
        if runner.iter + 1 == WARM_UP:
            self.start = sent_bytes()
        if runner.iter + 1 == STEPS:
            self.sent = (sent_bytes() - self.start) / (STEPS - WARM_UP)
            self.kept = resident_bytes()


def sent_bytes() -> int:
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


def resident_bytes() -> int:
    """Bytes of this process in memory, freed ones given back before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE')


def measure(ranks: int, large: bool = False) -> tuple[nn.Module, float, float]:
    """The model of the demo, or a larger one; bytes that it sends and keeps.

    Those are the means of :class:`Usage` over so many processes.
    """
    # No more new words than a process has images.
    options = {'model.codebook.num_new_words': 4, **(LARGE if large else {})}
    with tempfile.TemporaryDirectory() as folder:
        write_photos(folder, BATCH, (60, 60))
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=''):
            usages = launch(
                *(train, ranks, folder, ranks, options),
                start_method='forkserver',
            )
    cfg = load_config(DEMO, cfg_options=options)
    sent, kept = (sum(values) / ranks for values in zip(*usages))
    return MODELS.build(cfg.model), sent, kept


def train(folder: str, ranks: int, options: dict) -> tuple[float, int]:
    """Train in one of the processes; bytes sent and kept."""
    options = {
        **options,
        'train_dataloader.dataset.data_root': folder,
        'train_dataloader.dataset.data_prefix': '',
        'train_dataloader.batch_size': BATCH // ranks,
        # A process that waits for one that has died is started again soon.
        'env_cfg.dist_cfg.timeout': 60,
        'train_dataloader.num_workers': 0,
        'train_cfg.max_iters': STEPS,
        **dict.fromkeys(('val_cfg', 'val_dataloader', 'val_evaluator')),
        'default_hooks.checkpoint': None,
        'optim_wrapper.dtype': 'float32',
        'log_level': 'ERROR',
    }
    launcher = 'pytorch' if ranks > 1 else 'none'
    runner = build_runner(load_config(DEMO, folder, options, launcher))
    usage = Usage()
    runner.register_hook(usage)
    runner.train()
    return usage.sent, usage.kept
