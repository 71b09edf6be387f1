# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What ``import mmmoca`` checks and prepares."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.utils import get_installed_path, is_installed

import mmmoca
from mmmoca import stack

from .test_packaging import PROJECT

EXTRAS = PROJECT['optional-dependencies']
STACK = {
    'torch': '2.11.0a0+cu130',
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

        monkeypatch.setattr(stack.metadata, 'version', version)
        monkeypatch.setattr(stack, 'find_spec', find_spec)

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
    assert 'torch>=2.6 (2.5.9)' in message
    assert 'mmengine>=0.10 (0.9.99)' in message
    assert 'mmcv>=2.0 (1.7.2)' in message
    assert 'mmpretrain>=1.2 (not installed)' in message
    # The names of the extra's distributions.
    command = re.search('`pip install (onedl-.*?)`', message)[1].split()
    names = [re.match('[a-z-]+', line)[0] for line in EXTRAS['onedl']]
    assert sorted(command) == sorted(names)


def test_a_checkout_on_the_path_is_taken_as_it_is(pretend):
    versions = {k: v for k, v in STACK.items() if k != 'onedl-mmpretrain'}
    pretend(versions, mmpretrain=True)
    stack.check_requirements()


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


def test_import_changes_nothing_of_the_process():
    code = (
        'import os, sys, torch\n'
        'from mmengine.runner import checkpoint\n'
        'def state():\n'
        '    return [dict(os.environ), list(sys.meta_path),\n'
        '        torch.serialization.get_safe_globals(),\n'
        '        dict(vars(checkpoint))]\n'
        'before = state()\n'
        'loaders = dict(checkpoint.CheckpointLoader._schemes)\n'
        'import mmmoca\n'
        'same = before == state()\n'
        'import mmmoca.checkpoints\n'
        'schemes = checkpoint.CheckpointLoader._schemes\n'
        'own = schemes.items() - loaders.items()\n'
        'print(same)\n'
        'print(all(scheme.startswith("mmmoca-") for scheme, _ in own))\n'
        'print(before[0] == state()[0] and before[3] == state()[3])'
    )
    assert _python(code)[-3:] == ['True'] * 3


def _python(code):
    """Lines that a fresh process prints."""
    return subprocess.run(
        [sys.executable, '-c', code],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.splitlines()
