# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Work of MMEngine that takes most of a small run and that no test reads."""

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
    """Call it once, when everything has been imported.

    A run would break the lines of its config's text four times, and draw an
    empty figure; each data set makes a garbage collection; the configs of the
    checkout, which nobody changes, are read a hundred times; and a config of
    mmdetection is looked up in a hundred metafiles.
    """
    yapf_api.FormatCode = lambda text, **_: (text, True)
    Visualizer._initialize_fig = _once(Visualizer._initialize_fig)
    base_dataset.gc = Mock()
    gc.freeze()
    Config._file2dict = staticmethod(_read_once(Config._file2dict))
    config_utils.load = functools.cache(config_utils.load)


def _once(method):
    """Let all instances share what it makes of equal settings."""
    made = {}

    def make(self, settings):
        key = repr(settings)
        if key not in made:
            made[key] = method(self, settings)
        return made[key]

    return make


def _read_once(read):
    """Let it read each file of the checkout, base or not, once."""
    known = functools.cache(read)

    def read_config(filename, *options, **more):
        file = os.path.abspath(filename)
        if not file.startswith(f'{ROOT}/'):
            return read(filename, *options, **more)
        return copy.deepcopy(known(file, *options, **more))

    return read_config
