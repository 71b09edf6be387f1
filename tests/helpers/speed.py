# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Skips work of MMEngine that dominates small runs and that no test needs."""

import copy
import functools
import gc
import os
from unittest.mock import Mock

from mmengine.config import Config
from mmengine.config import utils as config_utils
from mmengine.dataset import base_dataset
from mmengine.visualization import Visualizer
from yapf.yapflib import yapf_api

from .tools import ROOT


def spare_work():
    """Skip this work. Call the function once everything is imported.

    Without it, a run would reformat the text of its config four times, and
    draw an empty figure; each data set would collect garbage; the checkout's
    configs, which nobody changes, would be read a hundred times; and a config
    of mmdetection would be looked up in a hundred metafiles.
    """
    yapf_api.FormatCode = lambda text, **_: (text, True)
    Visualizer._initialize_fig = _once(Visualizer._initialize_fig)
    base_dataset.gc = Mock()
    gc.freeze()
    Config._file2dict = staticmethod(_read_once(Config._file2dict))
    config_utils.load = functools.cache(config_utils.load)


def _once(method):
    """Let instances with equal settings share one result."""
    made = {}

    def make(self, settings):
        key = repr(settings)
        if key not in made:
            made[key] = method(self, settings)
        return made[key]

    return make


def _read_once(read):
    """Read each file of the checkout once, whether it is a base or not."""
    known = functools.cache(read)

    def read_config(filename, *options, **more):
        file = os.path.abspath(filename)
        if not file.startswith(f'{ROOT}/'):
            return read(filename, *options, **more)
        return copy.deepcopy(known(file, *options, **more))

    return read_config
