# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fixtures for tests of several kinds.

Each fixture imports PyTorch only where it needs it: the process that hands out
the tests also reads this file, and that process should start at once.
"""

import gc
import os
from collections import OrderedDict

import pytest
from hypothesis import settings

gc.disable()  # until everything is imported, see `spare_work`

# Each run uses the same few examples; HYPOTHESIS_PROFILE=many tries others.
SETTINGS = dict(deadline=None, database=None)
settings.register_profile('few', max_examples=30, derandomize=True, **SETTINGS)
settings.register_profile('many', max_examples=1000, **SETTINGS)
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'few'))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Fail with a helpful message if mmcv's operators are missing."""
    if item.get_closest_marker('ops'):
        from mmmoca.requirements import check_compiled_ops

        check_compiled_ops()


def pytest_collection_modifyitems(items):
    """Run files with slow tests first; the others fill the gaps."""
    marks = 'slow', 'release'
    slow = {
        item.path
        for item in items
        if any(item.get_closest_marker(mark) for mark in marks)
    }
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish(session):
    if session.items:  # not in the process that hands out tests
        from .helpers.speed import spare_work

        spare_work()
    gc.enable()


@pytest.fixture(autouse=True, scope='module')
def own_instances():
    """Remove what a run leaves behind, so that other files are not affected.

    Otherwise, the run's scope would apply to their types without a prefix, and
    the level of its logger to their log lines.
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
    """Undo the changes of a test file to the tools."""
    from .helpers.tools import forget_tools

    yield
    forget_tools()


@pytest.fixture
def tool(monkeypatch):
    """Return a function that loads a tool with its program's import path."""
    from .helpers.tools import TOOLS, load_tool

    def load(name):
        for folder in (TOOLS, (TOOLS / name).parent):
            monkeypatch.syspath_prepend(str(folder))
        return load_tool(name)

    return load


@pytest.fixture
def no_first_weights(monkeypatch):
    """Skip the initialisation of weights, which is slow at full size."""
    from torch import nn

    for kind in (nn.Linear, nn.Conv2d):
        monkeypatch.setattr(kind, 'reset_parameters', lambda self: None)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """Return a folder with 48 training images of three classes.

    Runs also write to this folder.
    """
    from .helpers.images import write_images

    root = tmp_path_factory.mktemp('root')
    write_images(root)
    return root


@pytest.fixture(scope='session')
def workspace(tmp_path_factory):
    """Return a folder with ``data/imagenet``, where configs look by default.

    It has two classes, each with 4 images in ``train`` and 2 in ``val``. Tests
    only read it; their work dirs are in ``tmp_path``.
    """
    from .helpers.images import write_images

    root = tmp_path_factory.mktemp('workspace')
    write_images(root / 'data' / 'imagenet', train=4, val=2, classes=2)
    return root
