# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What ``import mmmoca`` checks and prepares."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from pickle import UnpicklingError
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.logging import HistoryBuffer
from mmengine.utils import get_installed_path, is_installed

import mmmoca
from mmmoca import stack

from .test_packaging import PROJECT

EXTRAS = PROJECT['optional-dependencies']
STACK = {
    'torch': '2.11.0+cu130',
    'onedl-mmengine': '0.10.12',
    'onedl-mmcv': '2.3.6',
    'onedl-mmpretrain': '1.3.6',
}
ORIGINALS = {
    'torch': '2.6.0',
    'mmengine': '0.10.7',
    'mmcv-lite': '2.1.0',
    'mmpretrain': '1.2.0',
}


@pytest.fixture
def pretend(monkeypatch):
    """Let the environment hold the given distributions, and modules."""

    def set_up(distributions, **checkouts):
        def version(name):
            if name not in distributions:
                raise stack.metadata.PackageNotFoundError(name)
            return distributions[name]

        def find_spec(module):
            names = [
                part for name in distributions for part in name.split('-')
            ]
            return module in names or checkouts.get(module)

        def import_module(module):
            return SimpleNamespace(__version__=checkouts[module])

        monkeypatch.setattr(stack.metadata, 'version', version)
        monkeypatch.setattr(stack, 'find_spec', find_spec)
        monkeypatch.setattr(stack, 'import_module', import_module)

    return set_up


@pytest.mark.parametrize('versions', [STACK, ORIGINALS])
def test_both_stacks_are_accepted(pretend, versions):
    pretend(versions)
    stack.check_requirements()


def test_one_error_lists_all_that_is_wrong(pretend):
    pretend({'torch': '2.5.9', 'mmengine': '0.9.99', 'mmcv': '1.7.2'})
    with pytest.raises(ImportError) as error:
        stack.check_requirements()
    message = str(error.value)
    assert 'torch>=2.6 (found 2.5.9)' in message
    assert 'mmengine>=0.10 (found 0.9.99)' in message
    assert 'mmcv>=2.0 (found 1.7.2)' in message
    assert 'mmpretrain>=1.2 (not installed)' in message
    # The package is on no index: the names of the extra's distributions do.
    command = re.search('`pip install (onedl-.*?)`', message)[1].split()
    names = [re.match('[a-z-]+', line)[0] for line in EXTRAS['onedl']]
    assert sorted(command) == sorted(names)
    assert "in a checkout: `pip install -e '.[onedl]'`" in message


@pytest.mark.parametrize('version', ['1.2.0', '1.1.0'])
def test_a_checkout_on_the_path_is_asked_for_its_version(pretend, version):
    versions = {k: v for k, v in STACK.items() if k != 'onedl-mmpretrain'}
    pretend(versions, mmpretrain=version)
    if version == '1.2.0':
        stack.check_requirements()
    else:
        only = r'needs mmpretrain>=1.2 \(found 1.1.0\)\. Install'
        with pytest.raises(ImportError, match=only):
            stack.check_requirements()


def test_versions_compare_as_numbers():
    versions = ['2.9.1', '2.10.0a0+git1f', '2.10.1', '2.11.0+cu130', '10']
    releases = [stack._release(version) for version in versions]
    assert releases == [(2, 9, 1), (2, 10, 0), (2, 10, 1), (2, 11, 0), (10,)]
    assert releases == sorted(releases)


def test_import_names_what_is_missing_and_loads_nothing_big():
    code = (
        'import sys\n'
        "sys.modules['mmcv'] = None\n"  # as if it were not there
        'try:\n'
        '    import mmmoca\n'
        'except ImportError as error:\n'
        '    print(error)\n'
        "print('torch' in sys.modules)"
    )
    missing, torch_loaded = _python(code)
    assert 'needs mmcv>=2.0 (not installed). Install' in missing
    assert torch_loaded == 'False'

    code = (
        'import sys, mmmoca\n'
        "big = {'mmcv', 'mmmoca.apis', 'mmpretrain', 'torchvision'}\n"
        'print(big & sys.modules.keys())'
    )
    assert _python(code) == ['set()']


def test_mmengine_finds_the_imported_package():
    name = MODULE2PACKAGE['mmmoca']
    assert is_installed(name)
    assert Path(get_installed_path(name)) == Path(mmmoca.__file__).parent


@pytest.fixture
def fresh_allow_list():
    """Start from an empty allow-list of torch.load, and restore it."""
    if not hasattr(torch.serialization, 'clear_safe_globals'):
        pytest.skip('this version of PyTorch has no allow-list')
    before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(before)


def test_checkpoints_of_mmengine_load_with_weights_only(
    fresh_allow_list, tmp_path
):
    buffer = HistoryBuffer()
    for value in (3.0, 1.0, 2.0):
        buffer.update(value)
    content = {
        'message_hub': {
            'log_scalars': {'loss': buffer},
            'runtime_info': {'lr': np.float64(0.5), 'flag': np.bool_(True)},
        },
        # As a saved state of NumPy's or PyTorch's generator.
        'rng': (np.arange(5, dtype=np.uint32), np.zeros(2, np.int8)),
        'state_dict': {'weight': torch.arange(3.0)},
    }
    path = tmp_path / 'latest.pth'
    torch.save(content, path)
    with pytest.raises(UnpicklingError, match='HistoryBuffer'):
        torch.load(path, weights_only=True)

    stack.allow_checkpoint_contents()
    for file in (path, _as_of_other_numpy(path)):
        loaded = torch.load(file, weights_only=True)
        loss = loaded['message_hub']['log_scalars']['loss']
        assert loss.mean() == 2.0 and loss.statistics('min') == 1.0
        assert loaded['message_hub']['runtime_info']['lr'] == 0.5
        assert loaded['rng'][0].tolist() == [0, 1, 2, 3, 4]
        assert loaded['rng'][0].dtype == np.uint32
        assert loaded['state_dict']['weight'].tolist() == [0.0, 1.0, 2.0]


class _Lookup:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return getattr, self.arguments


def test_other_contents_are_still_refused(fresh_allow_list, tmp_path):
    stack.allow_checkpoint_contents()
    content = _Lookup(np.ndarray, 'tofile')
    torch.save({'state_dict': content}, tmp_path / 'foreign.pth')
    with pytest.raises(UnpicklingError, match='methods of HistoryBuffer only'):
        torch.load(tmp_path / 'foreign.pth', weights_only=True)


def _python(code):
    """Lines that a fresh process prints."""
    return subprocess.run(
        [sys.executable, '-c', code],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.splitlines()


def _as_of_other_numpy(path):
    """Copy of a checkpoint as written by NumPy 1 (or by 2, on 1)."""
    here, there = b'cnumpy._core.multiarray\n', b'cnumpy.core.multiarray\n'
    target = path.with_suffix('.other')
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, 'w') as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith('/data.pkl'):
                if here not in data:
                    here, there = there, here
                assert here in data
                data = data.replace(here, there)
            new.writestr(name, data)
    return target
