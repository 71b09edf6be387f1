# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tool that builds mmcv's operators, without building them."""

import subprocess
from pathlib import Path

import pytest

from mmmoca.requirements import MissingOpsError, check_compiled_ops

from ..helpers.tools import load_tool

WHEEL = 'onedl_mmcv-2.3.6-py3-none-any.whl'


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """Load the tool, with its own cache and mmcv 2.3.6 as if installed.

    pip's builds and installations are recorded but not carried out.
    """
    tool = load_tool('build_mmcv_ops')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.delenv('CFLAGS', raising=False)
    monkeypatch.setattr(
        tool, 'installed_mmcv', lambda: ('onedl-mmcv', '2.3.6')
    )
    tool.content = 'ops'  # of the wheel that pip builds, None without one
    tool.builds, tool.installed = [], []

    def run(command, **options):
        works, printed = True, ''
        if 'wheel' in command:
            tool.builds.append((command, options['env']))
            folder = Path(command[command.index('-w') + 1])
            folder.mkdir(parents=True)
            if tool.content is not None:
                tool.cached = folder / WHEEL
                tool.cached.write_text(tool.content)
        elif 'install' in command:
            tool.installed.append(Path(command[-1]).read_text())
        else:  # the import
            here = tool.installed[-1] if tool.installed else 'none'
            works = here in ('ops', 'CUDA')
            printed = '13.0' if here == 'CUDA' else 'not available'
        return subprocess.CompletedProcess(command, not works, printed)

    monkeypatch.setattr(tool.subprocess, 'run', run)
    return tool


def test_built_once(tool):
    tool.install_ops()
    ((command, environment),) = tool.builds
    for option in ('--no-build-isolation', '--no-cache-dir', '--no-deps'):
        assert option in command
    assert command[-1] == 'onedl-mmcv==2.3.6'
    assert environment['CFLAGS'] == '-O1 -g0 -w'
    assert environment['MMCV_WITH_OPS'] == '1'
    tool.installed.clear()  # another environment
    tool.install_ops()
    assert len(tool.builds) == 1 and tool.installed == ['ops']
    tool.install_ops()  # there already
    assert tool.installed == ['ops']

    tool.cached.write_text('no ops')  # broken, so it is replaced
    tool.installed.clear()
    tool.install_ops()
    assert tool.installed == ['no ops', 'ops']
    assert tool.cached.read_text() == 'ops'


def test_a_toolkit_replaces_operators_for_cpus(tool, monkeypatch, tmp_path):
    """A container image, for example, is built without a GPU."""
    tool.install_ops()
    monkeypatch.setenv('CUDA_HOME', str(tmp_path))
    monkeypatch.setattr('torch.utils.cpp_extension.CUDA_HOME', str(tmp_path))
    tool.installed[:], tool.content = ['ops'], 'CUDA'
    tool.install_ops()
    assert [env['FORCE_CUDA'] for _, env in tool.builds] == ['0', '1']
    assert tool.installed[-1] == 'CUDA'


@pytest.mark.parametrize('content', ['no ops', None])
def test_failed_build_leaves_nothing(tool, content, tmp_path):
    tool.content = content
    with pytest.raises(SystemExit, match='built'):
        tool.install_ops()
    assert not [*tmp_path.rglob('onedl*')]


def test_no_headers(tool, monkeypatch, tmp_path):
    monkeypatch.setattr(tool.sysconfig, 'get_path', lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match='Python.h'):
        tool.install_ops()
    assert not tool.builds


@pytest.mark.parametrize('missing', ['mmdet', 'pycocotools', 'mmcv._ext'])
def test_what_detection_needs(monkeypatch, missing):
    monkeypatch.setattr(
        'mmmoca.requirements.find_spec', lambda name: name != missing or None
    )
    with pytest.raises(MissingOpsError, match=f'needs {missing} '):
        check_compiled_ops()
