# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Runs the programs of ``tools/``, and the package as if it were installed."""

import contextlib
import importlib.util
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

from mmengine.config.utils import MODULE2PACKAGE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / 'tools'
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def load_tool(name):
    """Load a file of ``tools/`` (without suffix) as a module.

    The module has another name than the file, since Python has a package
    `test`.
    """
    path = TOOLS / f'{name}.py'
    spec = importlib.util.spec_from_file_location(f'tool_{path.stem}', path)
    module = importlib.util.module_from_spec(spec)
    # Tools import modules from their own folder.
    with mock.patch.object(sys, 'path', [str(path.parent), *sys.path]):
        spec.loader.exec_module(module)
    return module


def run_tool(path, *arguments, code=0):
    """Run a program of the repository; return what it printed.

    The program must end with the exit status ``code``. It runs in this
    process, since a new one would spend ten seconds on imports.
    """
    script = ROOT / path
    output = io.StringIO()
    end = 0
    with (
        mock.patch.object(sys, 'argv', [str(script), *map(str, arguments)]),
        mock.patch.object(sys, 'path', [str(script.parent), *sys.path]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            runpy.run_path(str(script), run_name='__main__')
        except SystemExit as stop:
            end = stop.code or 0
    assert end == code, f'{output.getvalue()[-3000:]}{end}'
    return output.getvalue()


def python(*arguments, **options):
    """Run a new Python that imports this checkout; return the result."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | dict(PYTHONPATH=str(ROOT), OMP_NUM_THREADS='1'),
        capture_output=True,
        text=True,
        **options,
    )


def forget_tools():
    """Forget the modules of ``tools/``, so that they are imported anew."""
    folder = f'{TOOLS}/'
    for name, module in list(sys.modules.items()):
        file = getattr(module, '__file__', None) or ''
        if file.startswith(folder):
            del sys.modules[name]


def install_configs(monkeypatch, folder):
    """Make ``mmmoca::...`` work as if the package were installed."""
    package = folder / 'installed_mmmoca'
    (package / '.mim').mkdir(parents=True)
    (package / '__init__.py').touch()
    for name in ('configs', 'model-index.yml'):
        (package / '.mim' / name).symlink_to(ROOT / name)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(MODULE2PACKAGE, 'mmmoca', package.name)


def snippets(file, language):
    """Return the code blocks of a page that are in a given language."""
    blocks = rf'```{language}\n(.*?)```'
    return re.findall(blocks, (ROOT / file).read_text(), re.S)


def contents(root):
    """Return the bytes of each file in a folder, by its path."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob('*')
        if path.is_file()
    }
