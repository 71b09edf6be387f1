# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether this mmcv has the compiled operators that mmdet imports."""

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ['MissingOpsError', 'check_compiled_ops']

TOOL = Path('tools', 'build_mmcv_ops.py')


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
    package = Path(__file__).resolve().parent
    # An installed package has its tools in .mim, a checkout beside it.
    for root in (package / '.mim', package.parent):
        if (root / TOOL).is_file():
            return shlex.join([sys.executable, str(root / TOOL)])
    return f'python {TOOL}'
