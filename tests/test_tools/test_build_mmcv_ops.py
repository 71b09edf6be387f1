# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tool that builds mmcv's operators, without building them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from mmmoca import stack

from ..tools import load_tool

WHEEL = 'onedl_mmcv-2.3.6-py3-none-any.whl'


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """The tool, with a cache of its own and mmcv 2.3.6 installed."""
    module = load_tool('build_mmcv_ops')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setattr(
        module, 'installed_mmcv', lambda: ('onedl-mmcv', '2.3.6')
    )
    return module


def write_wheel(path, ops):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('mmcv/__init__.py', '')
        if ops:
            archive.writestr('mmcv/_ext.cpython-311-x86_64.so', '')
    return path


@pytest.fixture
def machine(tool, monkeypatch):
    """What pip builds and what was installed, without either happening."""

    class Machine:
        pip_builds = 'ops'  # 'no ops' or 'nothing'
        works_after_install = True
        builds = []
        installed = []

    def run(command, **options):
        if 'wheel' not in command:
            return subprocess.CompletedProcess(command, 0)
        Machine.builds.append((command, options['env']))
        folder = Path(command[command.index('-w') + 1])
        if Machine.pip_builds == 'nothing':
            options['stdout'].write('error: it is broken')
            return subprocess.CompletedProcess(command, 1)
        write_wheel(folder / WHEEL, Machine.pip_builds == 'ops')
        return subprocess.CompletedProcess(command, 0)

    Machine.builds, Machine.installed = [], []
    monkeypatch.setattr(tool.subprocess, 'run', run)
    monkeypatch.setattr(tool, 'install', Machine.installed.append)
    monkeypatch.setattr(
        tool,
        'ops_work',
        lambda: bool(Machine.installed) and Machine.works_after_install,
    )
    return Machine


def cached(tool):
    return tool.cache_folder('onedl-mmcv', '2.3.6') / WHEEL


def test_key_of_the_cache(tool, tmp_path):
    folder = tool.cache_folder('onedl-mmcv', '2.3.6')
    assert folder.parent == tmp_path / 'mmmoca'
    for part in (
        'onedl-mmcv-2.3.6',
        f'cpython-{sys.version_info[0]}{sys.version_info[1]}',
        f'torch{torch.__version__}',
    ):
        assert part in folder.name


def test_built_once(tool, machine):
    tool.install_ops()
    ((command, environment),) = machine.builds
    for option in ('--no-build-isolation', '--no-cache-dir', '--no-deps'):
        assert option in command
    assert command[-1] == 'onedl-mmcv==2.3.6'
    assert environment['CFLAGS'] == '-O1 -g0 -w'
    assert machine.installed == [cached(tool)]
    machine.installed.clear()  # another environment
    tool.install_ops()
    assert len(machine.builds) == 1
    assert machine.installed == [cached(tool)]
    tool.install_ops()  # there already
    assert len(machine.installed) == 1
    assert [p.name for p in cached(tool).parents[1].iterdir()] == [
        cached(tool).parent.name
    ]


@pytest.mark.parametrize('found', ['op-less', 'broken file'])
def test_cached_wheel_without_operators_is_replaced(tool, machine, found):
    write_wheel(cached(tool), ops=False)
    if found == 'broken file':
        cached(tool).write_bytes(b'half a wheel')
    tool.install_ops()
    assert len(machine.builds) == 1
    assert tool.has_ops(cached(tool))


@pytest.mark.parametrize('result', ['no ops', 'nothing'])
def test_failed_build_leaves_nothing(tool, machine, result, capsys):
    machine.pip_builds = result
    with pytest.raises(SystemExit, match='could not be built'):
        tool.install_ops()
    assert not cached(tool).exists() and not machine.installed
    if result == 'nothing':
        assert 'it is broken' in capsys.readouterr().err


def test_operators_that_cannot_be_imported(tool, machine):
    machine.works_after_install = False
    write_wheel(cached(tool), ops=True)
    with pytest.raises(SystemExit, match='cannot be imported'):
        tool.install_ops()
    assert len(machine.builds) == 1  # the cached one was given up
    assert not cached(tool).exists()


def test_no_compiler_or_no_headers(tool, machine, monkeypatch, tmp_path):
    monkeypatch.setenv('CXX', 'no-such-compiler')
    with pytest.raises(SystemExit, match=r'no-such-compiler.*install g\+\+'):
        tool.install_ops()
    monkeypatch.setattr(tool.shutil, 'which', lambda name: f'/bin/{name}')
    monkeypatch.setattr(tool.sysconfig, 'get_path', lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match='Python.h is missing.*python3-dev'):
        tool.install_ops()
    assert not machine.builds


@pytest.mark.parametrize('there', ['', 'mmdet', 'mmcv._ext'])
def test_what_detection_needs(monkeypatch, there):
    monkeypatch.setattr(stack, 'find_spec', lambda name: name == there or None)
    with pytest.raises(stack.MissingOpsError) as error:
        stack.check_compiled_ops()
    for word in ('onedl-mmdetection', 'tools/build_mmcv_ops.py'):
        assert word in str(error.value)
