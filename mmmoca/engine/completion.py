# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Imports a config's modules, and completes its data loaders."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from mmengine.config import Config, ConfigDict
from mmengine.utils import import_modules_from_strings

from mmmoca.config_parts import parts_of
from mmmoca.requirements import import_quietly

from .config_check import MMENGINE_HOOKS
from .config_files import config_files

# Folder of a config -> the modules imported from it, by name.
_BESIDE: dict[str, dict[str, ModuleType]] = {}


def complete(cfg: Config) -> None:
    """Import a config's modules, and complete its data loaders.

    Args:
        cfg (Config): Changed in place.

    Raises:
        ImportError: If a module of ``custom_imports`` cannot be imported, or
            is imported from elsewhere although the config's folder has a
            module of this name.
    """
    import mmmoca.import_mmpretrain  # noqa: F401

    if own := cfg.get('custom_imports'):
        # Record the folder, because the run writes its config into a folder
        # that does not contain the modules.
        home = _home_of(own, cfg)
        cfg.imports_from = home
        _import_own(own, home)
    scope = cfg.get('default_scope')
    if scope and find_spec(scope) and find_spec(f'{scope}.datasets'):
        import_quietly(f'{scope}.datasets')
    # Segmentation and detection need MMEngine's default collate_fn: their
    # images differ in size.
    _complete_dataloaders(cfg, scope not in ('mmseg', 'mmdet'))


def _home_of(own: dict, cfg: Config) -> str:
    """Return the folder that contains the modules of a config.

    The search begins with the folder of the config and those above it. The
    folders of the inherited configs and those above them follow. The last is
    the folder that an earlier run recorded.
    """
    files = [cfg.filename, *(f.name for f in reversed(config_files(cfg)))]
    folders = [home for f in files for home in Path(f).absolute().parents]
    if earlier := cfg.get('imports_from'):
        folders.append(Path(earlier))
    # One module is enough: the others may be from an installed package.
    parts = [f'{n}'.replace('.', '/') for n in parts_of(own.get('imports'))]
    for home in folders:
        if any(
            (home / part).is_dir() or (home / f'{part}.py').is_file()
            for part in parts
        ):
            return str(home)
    return str(folders[0])


def _import_own(own: dict, folder: str) -> None:
    """Import the modules of a config, and forget those of earlier configs.

    Two configs may each have a ``hooks.py``. So the folder of the earlier
    config is first removed from Python's path, and the modules that were
    imported from this folder are removed from ``sys.modules``.
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
    names = own.get('imports') or []
    try:
        import_modules_from_strings(**own)
    except ImportError as error:
        text = (
            f'custom_imports: {error}: {error.__context__} (looked in the '
            'folders of the config and its bases, and in the folders above)'
        )
        raise ImportError(text) from error
    for name in [names] if isinstance(names, str) else names:
        _check_origin(name.split('.')[0], folder)
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], '__file__', None) or ''
        if folder in _BESIDE and file.startswith(os.path.join(folder, '')):
            _BESIDE[folder][name] = sys.modules[name]


def _check_origin(name: str, folder: str) -> None:
    """Refuse a module if the config's folder has another of the same name."""
    found = getattr(sys.modules.get(name), '__file__', None)
    for own in (Path(folder, f'{name}.py'), Path(folder, name, '__init__.py')):
        if own.is_file() and found and not own.samefile(found):
            raise ImportError(
                f'custom_imports: {name} is {found}, not {own}: rename your '
                'module'
            )


def leave_out_hooks(cfg: Config) -> None:
    """Remove the default hooks that are None.

    MMEngine accepts None for its own hooks only.

    Args:
        cfg (Config): The config, changed in place.
    """
    hooks = cfg.get('default_hooks') or {}
    for name, hook in list(hooks.items()):
        if hook is None and name not in MMENGINE_HOOKS:
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
                # type. MMEngine would pass _scope_ to the collate function.
                collate.pop('_scope_', None)
            sampler = value.get('sampler') or {}
            if sampler.get('type') == 'mmmoca.SeededSampler':
                # This way, the number of iterations in an epoch does not
                # depend on the number of processes if the global batch stays
                # the same.
                sampler.setdefault('drop_last', value.get('drop_last', False))
            value.setdefault('pin_memory', True)
            value.setdefault('persistent_workers', True)
            # PyTorch warns of pin_memory without a GPU, and refuses
            # persistent_workers with num_workers=0.
            value.pin_memory &= torch.cuda.is_available()
            value.persistent_workers &= value.get('num_workers', 0) > 0
        _complete_dataloaders(value, equal)
