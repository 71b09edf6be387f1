# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What this package stands on: versions, checkpoints, operators."""

import os
import re
import shlex
import sys
import warnings
from contextlib import redirect_stdout
from importlib import import_module, metadata
from importlib.util import find_spec

from .hub import shipped
from .version import __version__

__all__ = [
    'MissingOpsError',
    'allow_checkpoint_contents',
    'check_compiled_ops',
    'check_requirements',
    'import_quietly',
]

# Module, its oldest version, and the distributions that provide it: OpenMMLab
# and the maintained forks (onedl-*) share module names, and packages of
# OpenMMLab have lite variants, so none of them can be a hard dependency.
_REQUIREMENTS = (
    ('torch', '2.6', ('torch',)),
    ('mmengine', '0.10', ('onedl-mmengine', 'mmengine', 'mmengine-lite')),
    ('mmcv', '2.0', ('onedl-mmcv', 'mmcv', 'mmcv-lite')),
    ('mmpretrain', '1.2', ('onedl-mmpretrain', 'mmpretrain')),
)
# What builds the operators of mmcv.
_TOOL = 'tools/build_mmcv_ops.py'


def _installed_version(
    module: str, distributions: tuple[str, ...]
) -> str | None:
    """Version of a module, without importing it where possible.

    Args:
        module (str): Name of the module.
        distributions (tuple[str, ...]): Names under which it may be
            installed.

    Returns:
        str | None: The version, or None where there is no such module.
    """
    if find_spec(module) is None:
        return None
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    # A checkout on PYTHONPATH has no metadata.
    return import_module(module).__version__


def _release(version: str) -> tuple[int, ...]:
    """Numbers of a version: (2, 11, 0) of '2.11.0a0+cu130'."""
    return tuple(map(int, re.findall(r'\d+', re.match(r'[\d.]+', version)[0])))


def check_requirements() -> None:
    """Check that the stack is there and recent enough.

    Raises:
        ImportError: If anything is missing or too old. The message lists all
            of it, and names the command that installs it.
    """
    problems = []
    for module, minimum, distributions in _REQUIREMENTS:
        found = _installed_version(module, distributions)
        if found is None:
            problems.append(f'{module}>={minimum} (not installed)')
        elif _release(found) < _release(minimum):
            problems.append(f'{module}>={minimum} (found {found})')
    if problems:
        raise ImportError(
            f'mmmoca {__version__} needs {", ".join(problems)}. Install the '
            'maintained forks by `pip install onedl-mmengine onedl-mmcv '
            'onedl-mmpretrain torchvision` (in a checkout: `pip install -e '
            "'.[onedl]'`), or OpenMMLab's own mmengine, mmcv and mmpretrain; "
            'not both in one environment, as their modules have the same '
            'names.'
        )


def allow_checkpoint_contents() -> None:
    """Have ``torch.load`` refuse what can run code, and nothing else.

    No library of this process may unpickle arbitrary objects any more: the
    forks of MMEngine would do so after a warning. Whoever insists sets
    PyTorch's variable ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1``. Beside tensors
    and plain values a checkpoint may hold what MMEngine pickles, its log
    history, which the original MMEngine (0.10.7) cannot resume otherwise.
    """
    insists = os.environ.get('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD')
    # The values that PyTorch takes for yes.
    if insists not in ('1', 'y', 'yes', 'true'):
        os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'] = '1'
    import torch

    from .unpickling import STAND_INS

    torch.serialization.add_safe_globals(STAND_INS)


def import_quietly(*modules: str) -> None:
    """Import modules of OpenMMLab, which print of packages that are missing.

    Nobody needs those packages who does not know of them.

    Args:
        *modules (str): Their names.

    Raises:
        ImportError: If there is no such module.
    """
    with warnings.catch_warnings(), redirect_stdout(None):
        warnings.simplefilter('ignore')
        for module in modules:
            import_module(module)


class MissingOpsError(ImportError):
    """mmdet, or the compiled operators of mmcv, are not installed."""


def check_compiled_ops() -> None:
    """Check that detection can run here.

    Raises:
        MissingOpsError: If mmdet or the compiled operators of mmcv are not
            installed. The message names the commands that install them.
    """
    problems = []
    if find_spec('mmdet') is None:
        problems.append(
            'mmdet (pip install onedl-mmdetection pycocotools; beside '
            "OpenMMLab's own packages mmdet instead)"
        )
    if find_spec('mmcv._ext') is None:
        problems.append(
            f'the compiled operators of mmcv ({_build_command()}, which takes '
            'some minutes; `make ops` in a checkout)'
        )
    if problems:
        raise MissingOpsError(f'detection needs {" and ".join(problems)}')


def _build_command() -> str:
    tool = shipped(_TOOL)
    if tool is None:
        return f'python {_TOOL}'
    return shlex.join([sys.executable, str(tool)])
