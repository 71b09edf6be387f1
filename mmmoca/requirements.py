# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks the requirements: versions of packages, and compiled operators."""

import gc
import getpass
import logging
import os
import re
import tempfile
import warnings
from contextlib import redirect_stdout, suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

# Each required module and its oldest supported version. Several distributions
# provide the modules of OpenMMLab, so none of these distributions can be a
# hard dependency.
_REQUIREMENTS = dict(
    torch='2.6', mmengine='0.10.7', mmcv='2.1', mmpretrain='1.2'
)


def _installed_version(module: str) -> str | None:
    """Return a module's version, or None for a checkout on PYTHONPATH.

    For a missing module, return the text 'not installed'.
    """
    if find_spec(module) is None:
        return 'not installed'
    for name in (f'onedl-{module}', module, f'{module}-lite'):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def _release(version: str) -> tuple[int, ...]:
    """Return a version as numbers: (2, 11, 0) for '2.11.0a0+cu130'."""
    return tuple(map(int, re.findall(r'\d+', re.match(r'[\d.]*', version)[0])))


def check_requirements() -> None:
    """Check that the required modules are installed and recent enough.

    Raises:
        ImportError: If modules are missing or too old. The message lists
            them all and says how to install them.
    """
    found = {module: _installed_version(module) for module in _REQUIREMENTS}
    problems = [
        f'{module}>={minimum} ({found[module]})'
        for module, minimum in _REQUIREMENTS.items()
        if found[module] and _release(found[module]) < _release(minimum)
    ]
    if problems:
        raise ImportError(
            f'mmmoca needs {", ".join(problems)}. Install the maintained '
            'forks with `pip install onedl-mmengine onedl-mmcv '
            'onedl-mmpretrain torchvision` (in a checkout: `pip install -e '
            "'.[onedl]'`), or "
            "OpenMMLab's own mmengine, mmcv and mmpretrain; not both in one "
            'environment, as their modules have the same names.'
        )


def name_compile_cache() -> None:
    """Set the folder for PyTorch's compiled code if the user has no name.

    Importing torchvision derives this folder from the user's name. In a
    container that knows the user only by number, that import would fail.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        folder = f'{tempfile.gettempdir()}/torchinductor_{os.getuid()}'
        os.environ.setdefault('TORCHINDUCTOR_CACHE_DIR', folder)


def import_quietly(*modules: str) -> None:
    """Import modules of OpenMMLab without their messages and warnings.

    Args:
        *modules (str): Names of the modules.

    Raises:
        ImportError: If there is no such module.
    """
    # mmdet logs that a model "cannot work without CUDA" if mmcv has no
    # operators.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    # Imported objects are not garbage. Looking for garbage among them would
    # take a seventh of the time of the import.
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings(), redirect_stdout(None):
            warnings.simplefilter('ignore')
            for module in modules:
                import_module(module)
    finally:
        logging.disable(before)
        if collects:
            gc.enable()


def import_extra(module: str, user: str, extra: str = 'data') -> Any:
    """Import a module that one of this package's extras installs.

    Args:
        module (str): Name of the module.
        user (str): What needs the module, for the error message.
        extra (str): Name of the extra. Defaults to 'data'.

    Returns:
        Any: The module.

    Raises:
        ImportError: If it is not installed. The message says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{user} needs {module}: pip install 'mmmoca[{extra}]'"
        ) from error


# Each module that detection needs, and how to install it.
_FOR_DETECTION = {
    'mmdet': "`pip install onedl-mmdetection`, or with OpenMMLab's own "
    'packages `pip install mmdet`',
    'pycocotools': '`pip install pycocotools`',
    'mmcv._ext': 'the compiled operators of mmcv: run `make ops` for the .venv'
    ' of `make test`, or tools/build_mmcv_ops.py for another environment',
}


class MissingOpsError(ImportError):
    """A package that detection needs, or mmcv's operators, are missing."""


def check_compiled_ops() -> None:
    """Check that the packages for detection are installed.

    Raises:
        MissingOpsError: If mmdet, pycocotools or the compiled operators of
            mmcv are not installed. The message says how to install them.
    """
    missing = [
        f'{module} ({remedy})'
        for module, remedy in _FOR_DETECTION.items()
        if not find_spec(module)
    ]
    if missing:
        raise MissingOpsError(f'detection needs {", ".join(missing)}')
