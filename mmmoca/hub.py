# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Where OpenMMLab finds our configs and models by their names."""

import functools
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ['register_configs', 'register_models', 'shipped']

_PACKAGE = Path(__file__).resolve().parent
_MODEL_HUB = 'mmpretrain.apis.model'
# Models that mmpretrain can build. mim reads model-index.yml, which has
# segmentors and detectors, too.
_METAFILES = (
    'configs/metafile.yml',
    'configs/classification/metafile.yml',
    'configs/demo/metafile.yml',
)


def shipped(name: str) -> Path | None:
    """Find what comes with the package and lies outside of its modules.

    Args:
        name (str): Path of a file or folder of the repository, such as
            ``configs`` or ``tools/train.py``.

    Returns:
        Path | None: Where it is: in ``.mim`` of a package as installed, or
        beside the package in a checkout. None where neither is.
    """
    for root in (_PACKAGE / '.mim', _PACKAGE.parent):
        if (root / name).exists():
            return root / name
    return None


def register_configs() -> None:
    """Let ``mmmoca::NAME.py`` mean a config of this package.

    In ``_base_`` and in ``mmengine.hub.get_config``.
    """
    from mmengine.config import utils

    # MMEngine takes the name of a distribution and looks for its files in
    # site-packages, where those of an editable install are not. A submodule
    # is no distribution, so that MMEngine takes the folder it lies in.
    utils.MODULE2PACKAGE['mmmoca'] = 'mmmoca.version'
    find = utils._get_package_and_cfg_path

    @functools.wraps(find)
    def find_without_folder(cfg_path: str) -> tuple[str, str]:
        package, _, name = cfg_path.partition('::')
        # MMEngine wants a folder before the name, and most of ours have none.
        if package == 'mmmoca' and '/' not in name:
            return utils.MODULE2PACKAGE[package], name
        return find(cfg_path)

    for user in ('config.utils', 'config.config', 'hub.hub'):
        module = sys.modules.get(f'mmengine.{user}')
        if hasattr(module, find.__name__):
            setattr(module, find.__name__, find_without_folder)


def register_models() -> None:
    """Add our models to mmpretrain's ``ModelHub``.

    ``list_models``, ``get_model`` and the inferencers know their names then.
    mmpretrain takes seconds to import: where nobody has done so yet, the
    models are added when somebody does.
    """
    if _MODEL_HUB in sys.modules:
        _add_models(sys.modules[_MODEL_HUB])
    else:
        sys.meta_path.insert(0, _ModelHubFinder)


class _ModelHubFinder:
    """Adds our models to the module of the hub when it is imported."""

    @staticmethod
    def find_spec(
        name: str, path: list[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name != _MODEL_HUB:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_add(module: ModuleType) -> None:
                execute(module)
                _add_models(module)

            spec.loader.exec_module = execute_and_add
        return spec


def _add_models(module: ModuleType) -> None:
    if module.ModelHub.has('moca_vit-b16_200e'):
        return  # this package is reloaded
    for name in _METAFILES:
        metafile = shipped(name)
        if metafile is not None:
            root = metafile.parents[name.count('/')]
            module.ModelHub.register_model_index(metafile, root)
