# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What ``import mmmoca`` checks and prepares."""

import re
from pathlib import Path

import pytest
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.utils import get_installed_path, is_installed

import mmmoca
from mmmoca import requirements

from .helpers.tools import PROJECT, ROOT, python

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
    """Pretend that distributions are installed (None means a checkout)."""

    def set_up(distributions):
        def version(name):
            if distributions.get(name) is None:
                raise requirements.metadata.PackageNotFoundError(name)
            return distributions[name]

        def find_spec(module):
            return True if module in '-'.join(distributions) else None

        monkeypatch.setattr(requirements.metadata, 'version', version)
        monkeypatch.setattr(requirements, 'find_spec', find_spec)

    return set_up


def test_both_stacks_are_accepted(pretend):
    for versions in (STACK, ORIGINALS):
        pretend(versions)
        requirements.check_requirements()
    # A checkout on the path is accepted without a version.
    pretend(STACK | {'onedl-mmpretrain': None})
    requirements.check_requirements()


def test_one_error_lists_all_that_is_wrong(pretend):
    pretend({'torch': '2.5.9', 'mmengine': '0.9.99', 'mmcv': '1.7.2'})
    with pytest.raises(ImportError) as error:
        requirements.check_requirements()
    message = str(error.value)
    assert 'torch>=2.6 (2.5.9)' in message
    assert 'mmengine>=0.10.7 (0.9.99)' in message
    assert 'mmcv>=2.1 (1.7.2)' in message
    assert 'mmpretrain>=1.2 (not installed)' in message
    # The command names the distributions of the extra.
    command = re.search('`pip install (onedl-.*?)`', message)[1].split()
    names = [re.match('[a-z-]+', line)[0] for line in EXTRAS['onedl']]
    assert sorted(command) == sorted(names)


def test_mmengine_finds_the_imported_package():
    name = MODULE2PACKAGE['mmmoca']
    assert is_installed(name)
    assert Path(get_installed_path(name)) == Path(mmmoca.__file__).parent


CODE = """
import gc, os, sys, torch
from mmengine.runner import checkpoint

def state():
    return [
        dict(os.environ),
        dict(vars(checkpoint)),
        list(sys.meta_path),
        torch.serialization.get_safe_globals(),
    ]

before = state()
loaders = dict(checkpoint.CheckpointLoader._schemes)
import mmmoca
big = {'mmcv', 'mmmoca.apis', 'mmpretrain', 'torchvision'}
assert before == state() and not big & sys.modules.keys()

sys.modules['mmdet'] = None  # which takes half of the next line's time
import mmmoca.import_mmpretrain, mmseg.utils
from mmseg.registry import METRICS
before = state()
assert gc.isenabled()
assert not {'mmmoca.registry', 'mmmoca.checkpoints'} & sys.modules.keys()
metric = METRICS.get('mmmoca.KNNAccuracy')
assert metric.__module__ == 'mmmoca.evaluation.metrics'
# Checkpoints of others are read by our reader from now on.
own = checkpoint.CheckpointLoader._schemes.items() - loaders.items()
assert own and all(scheme.startswith('mmmoca-') for scheme, _ in own)
from mmmoca.engine.config import read_run
config = 'segmentation/segmenter_moca-vit-b16_mask_own-masks-512x512.py'
read_run(f'configs/{config}', {'arch': 'deit-s'})
assert before[:2] == state()[:2]
"""


@pytest.mark.processes
def test_a_process_before_and_after_the_first_use():
    """``import mmmoca`` loads little; a prefix in a config loads the rest."""
    done = python('-c', CODE, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert not done.stdout
