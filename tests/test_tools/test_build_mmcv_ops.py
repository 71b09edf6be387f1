# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tool that builds mmcv's operators, without building them."""

import subprocess
from pathlib import Path

import pytest

from mmmoca import stack

from ..tools import load_tool

WHEEL = 'onedl_mmcv-2.3.6-py3-none-any.whl'


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """The tool, with a cache of its own and mmcv 2.3.6 installed."""
    module = load_tool('build_mmcv_ops')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    mmcv = 'onedl-mmcv', '2.3.6'
    monkeypatch.setattr(module, 'installed_mmcv', lambda: mmcv)
    return module


@pytest.fixture
def machine(tool, monkeypatch):
    """What pip builds and what was installed, without either happening."""

    class Machine:
        content = 'ops'  # of the wheel that pip builds, None without one
        builds = []
        installed = []

    def run(command, **options):
        if 'wheel' in command:
            Machine.builds.append((command, options['env']))
            if Machine.content is not None:
                folder = Path(command[command.index('-w') + 1])
                (folder / WHEEL).write_text(Machine.content)
            said = 'what the build said'
            return subprocess.CompletedProcess(command, 0, said)
        if 'install' in command:
            Machine.installed.append(Path(command[-1]).read_text())
        elif Machine.installed[-1:] != ['ops']:  # the import
            return subprocess.CompletedProcess(command, 1)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(tool.subprocess, 'run', run)
    return Machine


def cached(tool):
    return tool.cache_folder('onedl-mmcv', '2.3.6') / WHEEL


def test_built_once(tool, machine):
    tool.install_ops()
    ((command, environment),) = machine.builds
    for option in ('--no-build-isolation', '--no-cache-dir', '--no-deps'):
        assert option in command
    assert command[-1] == 'onedl-mmcv==2.3.6'
    assert environment['CFLAGS'] == '-O1 -g0 -w'
    assert [*cached(tool).parents[1].iterdir()] == [cached(tool).parent]
    machine.installed.clear()  # another environment
    tool.install_ops()
    assert len(machine.builds) == 1 and machine.installed == ['ops']
    tool.install_ops()  # there already
    assert machine.installed == ['ops']

    cached(tool).write_text('no ops')  # it does not work, and is replaced
    machine.installed.clear()
    tool.install_ops()
    assert machine.installed == ['no ops', 'ops']
    assert cached(tool).read_text() == 'ops'


@pytest.mark.parametrize('content', ['no ops', None])
def test_failed_build_leaves_nothing(tool, machine, content, capsys):
    machine.content = content
    with pytest.raises(SystemExit, match='could not be built'):
        tool.install_ops()
    assert not cached(tool).exists()
    assert 'what the build said' in capsys.readouterr().err


def test_no_headers(tool, machine, monkeypatch, tmp_path):
    monkeypatch.setattr(tool.sysconfig, 'get_path', lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match='Python.h.*python3-dev'):
        tool.install_ops()
    assert not machine.builds


@pytest.mark.parametrize('there', ['mmdet', 'mmcv._ext'])
def test_what_detection_needs(monkeypatch, there):
    monkeypatch.setattr(stack, 'find_spec', lambda name: name == there or None)
    with pytest.raises(stack.MissingOpsError, match='build_mmcv_ops.py'):
        stack.check_compiled_ops()
