# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Put configs and tools where OpenMMLab looks for them: ``mmmoca/.mim``.

Everything else about the package is in ``pyproject.toml``.
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# Configs beside the folders are left out: each inherits the config of the same
# name in a folder, and mim refuses a name that occurs twice.
MIM_CONTENTS = (
    'tools',
    'model-index.yml',
    *(
        f'configs/{path.name}'
        for path in (ROOT / 'configs').iterdir()
        if path.suffix != '.py'
    ),
)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(os.path.relpath(source, target.parent))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns('__pycache__')
        )
    else:
        shutil.copy2(source, target)


class BuildWithMim(build_py):
    """Make ``.mim``: copies in a wheel, links in an editable install.

    Wheels, ``pip install``, PEP 660 editable installs (``editable_mode``) and
    ``setup.py develop`` all run this command. The folder is no package data,
    because setuptools passes over names with a leading dot.
    """

    def run(self) -> None:
        """Build the package, then its ``.mim``."""
        if self.editable_mode:
            # mim looks for the package beside its metadata, where an editable
            # install has none, by the first name in this file: a whole path
            # leads it here.
            wheel = Path(self.get_finalized_command('install').install_lib)
            (names,) = wheel.glob('mmmoca-*.dist-info/top_level.txt')
            names.write_text(f'{ROOT / "mmmoca"}\nmmmoca\n')
        super().run()
        package = ROOT if self.editable_mode else Path(self.build_lib)
        mim = package / 'mmmoca' / '.mim'
        if mim.exists():
            shutil.rmtree(mim)
        (mim / 'configs').mkdir(parents=True)
        for name in MIM_CONTENTS:
            put = _link if self.editable_mode else _copy
            put(ROOT / name, mim / name)


setup(cmdclass={'build_py': BuildWithMim})
