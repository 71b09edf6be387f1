# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads, checks and completes the config of a run.

What a config gets wrong by itself is refused before PyTorch is loaded.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.utils import import_modules_from_strings

from mmmoca.requirements import check_compiled_ops, import_quietly

from .config_check import RUN_KEYS, check_config
from .options import apply_settings, read_option
from .processes import check_launcher

_MMENGINE_HOOKS = (
    'runtime_info',
    'timer',
    'sampler_seed',
    'logger',
    'param_scheduler',
    'checkpoint',
)
# Folders of configs, and what was imported from there.
_BESIDE: dict[str, dict[str, ModuleType]] = {}


def load_config(
    file: str | os.PathLike,
    work_dir: str | None = None,
    cfg_options: dict | Sequence[str] = (),
    launcher: str = 'none',
    complete: bool = True,
) -> Config:
    """Load a config, check it and complete its data loaders.

    The folder of the file can be imported from, by its ``custom_imports``.

    Args:
        file (str | os.PathLike): The config file.
        work_dir (str, optional): Where the run writes. Defaults to the
            config's, or else ``work_dirs/<name of the file>``.
        cfg_options (dict | Sequence[str]): Settings that override the
            config's, with dotted keys; or the texts ``KEY=VALUE`` of a
            command line.
        launcher (str): What started the processes: 'none', 'pytorch',
            'slurm' or 'mpi'. Defaults to 'none'.
        complete (bool): Whether to call :func:`complete_config`. Without it
            PyTorch is not loaded. Defaults to True.

    Returns:
        Config: For :mod:`.training`.

    Raises:
        MissingOpsError: If a config of detection lacks mmdet or compiled
            operators.
        ImportError: If ``custom_imports`` names no module.
        ValueError: If an option names a key that nothing reads, or one of a
            part that is None. See also :func:`check_config`.
        RuntimeError: See :func:`check_launcher`.
    """
    check_launcher(launcher)
    cfg = Config.fromfile(file, import_custom_modules=False)
    cfg.launcher = launcher
    default = os.path.join('work_dirs', Path(file).stem)
    folder = work_dir or cfg.get('work_dir') or default
    cfg.work_dir = os.path.expanduser(folder)
    shorthands, options = cfg.get('shorthands') or {}, cfg_options or {}
    if not isinstance(options, dict):
        pairs = dict(text.split('=', 1) for text in options)
        options = {
            key: read_option(cfg, shorthands.get(key, key), text)
            for key, text in pairs.items()
        }
    # Variables that a config computes other keys with are read no more.
    sections = [key for key, v in cfg.items() if isinstance(v, (dict, list))]
    known = {*sections, *shorthands, *RUN_KEYS}
    # A config file may use the shorthands that it inherits.
    used = [key for key in shorthands if _is_setting(cfg.get(key))]
    settings = {key: cfg.pop(key) for key in used}
    apply_settings(cfg, settings | options)
    check_config(cfg)
    if unread := {key.split('.')[0] for key in options} - known:
        raise ValueError(
            f'there is no setting {", ".join(sorted(unread))}: write whole '
            'keys, such as optim_wrapper.optimizer.lr'
        )
    leave_out_hooks(cfg)
    if (cfg.get('val_cfg') or {}).get('data_root') == '':
        # Without labelled images there is no k-NN.
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    if cfg.get('default_scope') == 'mmdet':
        check_compiled_ops()
    if complete:
        complete_config(cfg)
    return cfg


def _is_setting(value: Any) -> bool:
    """Whether it is no part of a config: flip = dict(type='RandomFlip')."""
    is_part = isinstance(value, dict) and 'type' in value
    return value is not None and not is_part


def complete_config(cfg: Config) -> None:
    """Import what a config names, and complete its data loaders.

    Args:
        cfg (Config): Of :func:`load_config`, changed in place.

    Raises:
        ImportError: See :func:`load_config`.
    """
    import mmmoca.quietly  # noqa: F401

    if own := cfg.get('custom_imports'):
        _import_own(own, os.path.dirname(os.path.abspath(cfg.filename)))
    scope = cfg.get('default_scope')
    if scope and find_spec(scope) and find_spec(f'{scope}.datasets'):
        import_quietly(f'{scope}.datasets')
    # Segmentation and detection need MMEngine's default collate_fn: their
    # images differ in size.
    _complete_dataloaders(cfg, scope not in ('mmseg', 'mmdet'))


def _import_own(own: dict, folder: str) -> None:
    """Import modules, those beside a config before those of earlier ones.

    Two configs may have a ``hooks.py`` each: the folder of an earlier config,
    and what was imported from there, step aside.
    """
    for earlier, modules in _BESIDE.items():
        if earlier != folder and earlier in sys.path:
            sys.path.remove(earlier)
            for name in modules:
                sys.modules.pop(name, None)
    if folder not in sys.path:
        sys.path.append(folder)
        sys.modules.update(_BESIDE.setdefault(folder, {}))
    before = {*sys.modules}
    try:
        import_modules_from_strings(**own)
    except ImportError as error:
        text = f'custom_imports: {error}: {error.__context__}'
        raise ImportError(text) from error
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], '__file__', None) or ''
        if folder in _BESIDE and file.startswith(os.path.join(folder, '')):
            _BESIDE[folder][name] = sys.modules[name]


def leave_out_hooks(cfg: Config) -> None:
    """Remove the default hooks that are None.

    MMEngine accepts None for its own hooks only.

    Args:
        cfg (Config): The config, changed in place.
    """
    hooks = cfg.get('default_hooks') or {}
    for name, hook in list(hooks.items()):
        if hook is None and name not in _MMENGINE_HOOKS:
            del hooks[name]


def _complete_dataloaders(cfg: ConfigDict | Config, equal: bool) -> None:
    import torch

    # mmpretrain's base configs rely on these defaults of its tools.
    for key, value in cfg.items():
        if not isinstance(value, ConfigDict):
            continue
        if key.endswith('dataloader'):
            if equal:
                value.setdefault('collate_fn', dict(type='default_collate'))
            collate = value.get('collate_fn')
            if isinstance(collate, dict):
                # Inheritance (`mmmoca::...`) adds _scope_ to dicts with a
                # type, and MMEngine passes it to the function.
                collate.pop('_scope_', None)
            sampler = value.get('sampler') or {}
            if sampler.get('type') == 'mmmoca.SeededSampler':
                # The iterations of an epoch do not depend on the processes.
                sampler.setdefault('drop_last', value.get('drop_last', False))
            value.setdefault('pin_memory', True)
            value.setdefault('persistent_workers', True)
            # PyTorch warns of pin_memory without a GPU, and refuses
            # persistent_workers with num_workers=0.
            value.pin_memory &= torch.cuda.is_available()
            value.persistent_workers &= value.get('num_workers', 0) > 0
        _complete_dataloaders(value, equal)
