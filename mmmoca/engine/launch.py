# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""From a config file to a runner, on GPUs or without any."""

import difflib
import inspect
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from mmengine.config import Config, ConfigDict
from mmengine.device import get_device
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmmoca.datasets.mask_checks import check_segmentation
from mmmoca.stack import check_compiled_ops, import_quietly

from .config_check import check_config
from .processes import collective_timeout
from .runners.quiet_runner import ConsoleRunner, QuietRunner

__all__ = ['build_runner', 'check_files', 'leave_out_hooks', 'load_config']

IMAGE_SETS = ('mmmoca.ImageFolder', 'mmmoca.ImageShards', 'mmmoca.HFImages')


def load_config(
    file: str | os.PathLike,
    work_dir: str | None = None,
    cfg_options: dict | None = None,
    launcher: str = 'none',
) -> Config:
    """Load a config and complete what its loaders leave open.

    Args:
        file (str | os.PathLike): The config file.
        work_dir (str, optional): Where the run writes; by default what the
            config says, else ``work_dirs/<name of the file>``.
        cfg_options (dict, optional): Settings that override the config's,
            with dotted keys.
        launcher (str): What started the processes: 'none', 'pytorch',
            'slurm' or 'mpi'. Defaults to 'none'.

    Returns:
        Config: For :func:`build_runner`, after changes of one's own.

    Raises:
        MissingOpsError: If the config is one of detection, and what that
            needs is not installed.
        ValueError: If an option names a key that nothing reads, or see
            :func:`check_config`.
    """
    cfg = Config.fromfile(file)
    cfg.launcher = launcher
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = os.path.join('work_dirs', Path(file).stem)
    # A file that inherits shorthands may use them, too.
    used = [key for key in cfg.get('shorthands') or () if key in cfg]
    cfg.merge_from_dict(_written_out(cfg, {key: cfg.pop(key) for key in used}))
    options = _written_out(cfg, cfg_options or {})
    _check_keys(cfg, options)
    cfg.merge_from_dict(options)
    check_config(cfg)
    leave_out_hooks(cfg)
    _leave_out_validation(cfg)
    scope = cfg.get('default_scope')
    if scope == 'mmdet':
        check_compiled_ops()
    if scope is not None and find_spec(scope) is not None:
        import_quietly(f'{scope}.datasets')
    # Images of segmentation and detection differ in size: MMEngine's default
    # is theirs, and their inferencers read no other.
    _complete_dataloaders(cfg, scope not in ('mmseg', 'mmdet'))
    return cfg


def _written_out(cfg: Config, options: dict) -> dict:
    """Options under the keys that a config's ``shorthands`` stand for."""
    shorthands = cfg.get('shorthands') or {}
    return {shorthands.get(key, key): v for key, v in options.items()}


def _leave_out_validation(cfg: Config) -> None:
    """Leave the k-NN out for which there are no labelled images."""
    if (cfg.get('val_cfg') or {}).get('data_root') == '':
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None


def _check_keys(cfg: Config, options: dict) -> None:
    """Refuse options that a typing error has made, which change nothing."""
    known = {*cfg, *inspect.signature(Runner.__init__).parameters}
    known |= {'auto_scale_lr', 'compile', 'find_unused_parameters'}
    known |= {'activation_checkpointing', 'strategy', 'runner_type'}
    known |= (cfg.get('shorthands') or {}).keys()
    for key in {option.split('.')[0] for option in options}:
        if key not in known:
            like = difflib.get_close_matches(key, known, n=1)
            raise ValueError(
                f'the config has no key {key}, and nothing would read it'
                + (f': did you mean {like[0]}?' if like else '')
            )


def leave_out_hooks(cfg: Config) -> None:
    """Remove the default hooks that are None.

    MMEngine takes None for its own hooks and fails on any other name.

    Args:
        cfg (Config): The config, changed in place.
    """
    hooks = cfg.get('default_hooks') or {}
    own = ('runtime_info', 'timer', 'sampler_seed', 'logger')
    own += ('param_scheduler', 'checkpoint')
    for name in [n for n, h in hooks.items() if h is None and n not in own]:
        del hooks[name]


def build_runner(cfg: Config, quiet: bool = False) -> Runner:
    """Build the runner, on processes without a GPU too.

    Args:
        cfg (Config): The config.
        quiet (bool): Show warnings and errors only, where the config names
            no ``runner_type`` of its own. Defaults to False.

    Returns:
        Runner: The runner of the config, or the one that its ``runner_type``
            names.

    Raises:
        RuntimeError: If processes without a GPU were not started by torchrun,
            or several are to share an Apple GPU.
    """
    if cfg.launcher != 'none':
        if get_device() == 'mps':
            raise RuntimeError(
                'PyTorch trains with one process on an Apple GPU: leave out '
                f'--launcher {cfg.launcher}'
            )
        if get_device() == 'cpu':
            _join_cpu_processes(cfg)
        _choose_wrapper(cfg)
    if 'runner_type' in cfg:
        return RUNNERS.build(cfg)
    return (QuietRunner if quiet else ConsoleRunner).from_cfg(cfg)


def check_files(cfg: Config, *stages: str) -> None:
    """Check that the files of a config are there.

    MMEngine looks for ``load_from`` and images after it has joined the
    processes and built the model.

    Args:
        cfg (Config): The config.
        *stages (str): 'train', 'val' or 'test', what is about to be run.

    Raises:
        FileNotFoundError: If the checkpoint of ``load_from`` or a folder of
            images is missing.
        SegDataError: See :func:`check_segmentation`.
    """
    # Files on other machines, s3://... say, are MMEngine's matter.
    scheme, _, path = (cfg.get('load_from') or '').rpartition('://')
    local = not scheme or scheme.startswith('mmmoca-')
    if path and local and not Path(path).expanduser().exists():
        raise FileNotFoundError(f'load_from: there is no checkpoint {path}')
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
                raise FileNotFoundError(
                    f'there is no folder {folder}: name yours by '
                    f'--cfg-options {key}.data_root=DIR'
                )
    check_segmentation(cfg, stages)


def _image_folders(part: object, data_root: str | None) -> Iterator[Path]:
    """Folders of this package's data sets in a part of a config."""
    if not isinstance(part, dict):
        return
    if part.get('type') in IMAGE_SETS:
        prefix = part.get('data_prefix', '')
        if isinstance(prefix, dict):
            prefix = prefix.get('img_path', '')
        folder = os.path.join(data_root or part.get('data_root', ''), prefix)
        if '://' not in folder and not folder.rstrip('/').endswith('.tar'):
            yield Path(folder).expanduser()
    for value in part.values():
        yield from _image_folders(value, data_root)


def _complete_dataloaders(cfg: ConfigDict | Config, equal: bool) -> None:
    # The defaults of mmpretrain's tools, which its base configs count on.
    for key, value in cfg.items():
        if not isinstance(value, ConfigDict):
            continue
        if key.endswith('dataloader'):
            if equal:
                value.setdefault('collate_fn', dict(type='default_collate'))
            collate = value.get('collate_fn')
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
        _complete_dataloaders(value, equal)


def _join_cpu_processes(cfg: Config) -> None:
    # MMEngine's own initialisation selects a GPU whatever the backend is, and
    # it wraps the model for a GPU unless told otherwise.
    if cfg.launcher != 'pytorch':
        raise RuntimeError(
            f'There is no GPU here, and --launcher {cfg.launcher} needs one. '
            'Start the processes by tools/dist_train.sh or by torchrun, with '
            '--launcher pytorch.'
        )
    if cfg.get('env_cfg') is None:
        cfg.env_cfg = dict()
    torch.distributed.init_process_group(
        'gloo', timeout=collective_timeout(cfg)
    )
    _replace_sync_bn(cfg)
    if cfg.env_cfg.get('dist_cfg') is None:
        cfg.env_cfg.dist_cfg = dict()
    cfg.env_cfg.dist_cfg.backend = 'gloo'


def _choose_wrapper(cfg: Config) -> None:
    # MMEngine's own choice, but that a gradient is a part of the buffer in
    # which it is sent, not a copy. static_graph is left out: it fails under
    # accumulation, whose first backward pass sends nothing.
    if cfg.get('model_wrapper_cfg') is None:
        cfg.model_wrapper_cfg = dict(
            type='MMDistributedDataParallel',
            broadcast_buffers=False,
            find_unused_parameters=cfg.get('find_unused_parameters', False),
            gradient_as_bucket_view=True,
        )
    kind = cfg.model_wrapper_cfg.get('type', 'MMDistributedDataParallel')
    if get_device() == 'cpu' and kind.endswith('DistributedDataParallel'):
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
