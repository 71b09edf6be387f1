# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fixtures for tests of several kinds.

They import PyTorch where they need it: the process that hands out the tests
reads this file, too, and waits for nothing else.
"""

import gc
import os
from collections import OrderedDict

import pytest
from hypothesis import settings

gc.disable()  # until all is imported, see `spare_work`

# The same few examples in each run; HYPOTHESIS_PROFILE=many looks for others.
SETTINGS = dict(deadline=None, database=None)
settings.register_profile('few', max_examples=30, derandomize=True, **SETTINGS)
settings.register_profile('many', max_examples=1000, **SETTINGS)
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'few'))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Fail with the command that helps where mmcv's operators are missing."""
    if item.get_closest_marker('ops'):
        from mmmoca.requirements import check_compiled_ops

        check_compiled_ops()


def pytest_collection_modifyitems(items):
    """Start with the files of slow tests: short ones fill the gaps."""
    marks = 'slow', 'release'
    slow = {
        item.path
        for item in items
        if any(item.get_closest_marker(mark) for mark in marks)
    }
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish(session):
    if session.items:  # none in the process that hands them out
        from .helpers.speed import spare_work

        spare_work()
    gc.enable()


@pytest.fixture(autouse=True, scope='module')
def own_instances():
    """What a run leaves behind is not for the tests of other files.

    Its scope would hold for types without a prefix, the level of its logger
    for what they log.
    """
    from mmengine.logging import MessageHub, MMLogger
    from mmengine.registry import DefaultScope
    from mmengine.visualization import Visualizer

    kinds = DefaultScope, MMLogger, MessageHub, Visualizer
    before = [kind._instance_dict for kind in kinds]
    for kind in kinds:
        kind._instance_dict = OrderedDict()
    yield
    for kind, instances in zip(kinds, before):
        kind._instance_dict = instances


@pytest.fixture(autouse=True, scope='module')
def own_tools():
    """What a file of tests changes in a tool is its own matter."""
    from .helpers.tools import forget_tools

    yield
    forget_tools()


@pytest.fixture
def tool(monkeypatch):
    """Load a file of ``tools/`` as it is when its program runs."""
    from .helpers.tools import TOOLS, load_tool

    def load(name):
        for folder in (TOOLS, (TOOLS / name).parent):
            monkeypatch.syspath_prepend(str(folder))
        return load_tool(name)

    return load


@pytest.fixture
def no_first_weights(monkeypatch):
    """Models are built without numbers, which take those of full size long."""
    from torch import nn

    for kind in (nn.Linear, nn.Conv2d):
        monkeypatch.setattr(kind, 'reset_parameters', lambda self: None)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """48 training images of three classes; a file's runs write beside them."""
    from .helpers.images import write_images

    root = tmp_path_factory.mktemp('root')
    write_images(root)
    return root


@pytest.fixture(scope='session')
def workspace(tmp_path_factory):
    """A folder with ``data/imagenet``, which the configs read by default.

    Two classes, of 4 images in ``train`` and 2 in ``val`` each. Read it only;
    work dirs belong to ``tmp_path``.
    """
    from .helpers.images import write_images

    root = tmp_path_factory.mktemp('workspace')
    write_images(root / 'data' / 'imagenet', train=4, val=2, classes=2)
    return root
