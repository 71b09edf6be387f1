# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""From a config file to a runner: what train.py and test.py share."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.config import Config, ConfigDict
from mmengine.device import get_device
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from _arguments import checkpoint_file
from mmmoca.stack import MissingOpsError, check_compiled_ops

__all__ = ['build_runner', 'check_files', 'load_config']


def load_config(
    parser: argparse.ArgumentParser, args: argparse.Namespace
) -> Config:
    """Load the config and apply the arguments that all tools share.

    Ends the program with one line where the config is one of detection and
    what that needs is not installed.

    Args:
        parser (argparse.ArgumentParser): To report errors by.
        args (argparse.Namespace): The parsed arguments.

    Returns:
        Config: The config, ready for the tool's own changes.
    """
    os.environ.setdefault('LOCAL_RANK', args.local_rank)
    cfg = Config.fromfile(args.config)
    cfg.launcher = args.launcher
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = os.path.join('work_dirs', args.config.stem)
    cfg.merge_from_dict(args.cfg_options)
    _leave_out_hooks(cfg)
    if cfg.get('default_scope') == 'mmdet':
        try:
            check_compiled_ops()
        except MissingOpsError as error:
            parser.error(str(error))
    stacked = cfg.get('default_scope') not in ('mmseg', 'mmdet')
    _complete_dataloaders(
        cfg, 'default_collate' if stacked else 'pseudo_collate'
    )
    return cfg


def build_runner(cfg: Config) -> Runner:
    """Build the runner, on processes without a GPU too.

    Args:
        cfg (Config): The config.

    Returns:
        Runner: The runner of the config, or the one that its ``runner_type``
            names.

    Raises:
        RuntimeError: If processes without a GPU were not started by torchrun.
    """
    if cfg.launcher != 'none' and get_device() == 'cpu':
        _join_cpu_processes(cfg)
    if 'runner_type' in cfg:
        return RUNNERS.build(cfg)
    return Runner.from_cfg(cfg)


def check_files(
    parser: argparse.ArgumentParser, cfg: Config, *stages: str
) -> None:
    """End the program with one line where a file of the config is missing.

    MMEngine looks for ``load_from`` and images after it has joined the
    processes and built the model.

    Args:
        parser (argparse.ArgumentParser): To report errors by.
        cfg (Config): The config.
        *stages (str): 'train', 'val' or 'test', what is about to be run.
    """
    if cfg.get('load_from') is not None:
        try:
            checkpoint_file(cfg.load_from)
        except argparse.ArgumentTypeError as error:
            parser.error(f'load_from: {error}')
    for stage in stages:
        loader = cfg.get(f'{stage}_dataloader')
        loop = cfg.get(f'{stage}_cfg') or {}
        root = loop.get('data_root')
        others = list(_image_folders(loop, root))
        # The loops of k-NN and low-shot, which have images of their own, can
        # move both sets.
        key = f'{stage}_cfg' if others else f'{stage}_dataloader.dataset'
        for folder in [*_image_folders(loader, root), *others]:
            if not folder.is_dir():
                parser.error(
                    f'there is no folder {folder}: name yours by '
                    f'--cfg-options {key}.data_root=DIR'
                )


def _image_folders(part: object, data_root: str | None) -> Iterator[Path]:
    """Folders of this package's data sets in a part of a config."""
    if not isinstance(part, dict):
        return
    if part.get('type') == 'mmmoca.ImageFolder':
        prefix = part.get('data_prefix', '')
        if isinstance(prefix, dict):
            prefix = prefix.get('img_path', '')
        folder = os.path.join(data_root or part.get('data_root', ''), prefix)
        if '://' not in folder:
            yield Path(folder).expanduser()
    for value in part.values():
        yield from _image_folders(value, data_root)


def _leave_out_hooks(cfg: Config) -> None:
    # MMEngine takes None for its own hooks and fails on any other name.
    hooks = cfg.get('default_hooks') or {}
    own = ('runtime_info', 'timer', 'sampler_seed', 'logger')
    own += ('param_scheduler', 'checkpoint')
    for name in [n for n, h in hooks.items() if h is None and n not in own]:
        del hooks[name]


def _complete_dataloaders(
    cfg: ConfigDict | Config, collate_fn: str = 'default_collate'
) -> None:
    # The defaults of mmpretrain's tools, which its base configs count on;
    # images of segmentation and detection differ in size.
    for key, value in cfg.items():
        if not isinstance(value, ConfigDict):
            continue
        if key.endswith('dataloader'):
            collate = value.setdefault('collate_fn', dict(type=collate_fn))
            if isinstance(collate, dict):
                # Inheritance (`mmmoca::...`) marks all dicts that have a type;
                # MMEngine passes this one's mark to the function.
                collate.pop('_scope_', None)
            value.setdefault('pin_memory', True)
            value.setdefault('persistent_workers', True)
            # PyTorch warns of the one without a GPU and refuses the other
            # without workers, although num_workers=0 is a usual override.
            value.pin_memory &= torch.cuda.is_available()
            value.persistent_workers &= value.get('num_workers', 0) > 0
        _complete_dataloaders(value, collate_fn)


def _join_cpu_processes(cfg: Config) -> None:
    # MMEngine's own initialisation selects a GPU whatever the backend is, and
    # it wraps the model for a GPU unless told otherwise.
    if cfg.launcher != 'pytorch':
        raise RuntimeError(
            f'There is no GPU here, and --launcher {cfg.launcher} needs one. '
            'Start the processes by tools/dist_train.sh or by torchrun, with '
            '--launcher pytorch.'
        )
    torch.distributed.init_process_group('gloo')
    _replace_sync_bn(cfg)
    if cfg.get('env_cfg') is None:
        cfg.env_cfg = dict()
    cfg.env_cfg.dist_cfg = dict(backend='gloo')
    if cfg.get('model_wrapper_cfg') is None:
        cfg.model_wrapper_cfg = dict(
            type='MMDistributedDataParallel',
            broadcast_buffers=False,
            find_unused_parameters=cfg.get('find_unused_parameters', False),
        )
    if cfg.model_wrapper_cfg.type.endswith('DistributedDataParallel'):
        cfg.model_wrapper_cfg.setdefault('device_ids', None)


def _replace_sync_bn(part: object) -> None:
    # PyTorch has it for GPUs only; on a CPU each process normalises alone.
    if isinstance(part, (dict, Config)):
        if part.get('type') == 'SyncBN':
            part['type'] = 'BN'
        part = [value for _, value in part.items()]
    if isinstance(part, (list, tuple)):
        for inner in part:
            _replace_sync_bn(inner)
