# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The parts of the drawn textures; test_drawn_classes.py has the set."""

import numpy as np
import pytest

from ..tools import load_tool


@pytest.fixture(scope='module')
def tool():
    return load_tool('dataset_converters/make_textures')


def test_stripes_have_the_declared_period(tool):
    field, period = tool._TEXTURES['stripes']
    u = np.arange(480) / period
    ink = field(u, u, 1.0, np.random.default_rng(0)) > 0
    spectrum = np.abs(np.fft.rfft(ink - ink.mean()))
    assert 480 / spectrum.argmax() == pytest.approx(period, rel=0.02)


def test_polygon_covers_what_it_says(tool):
    rng = np.random.default_rng(0)
    masks = np.stack([tool._polygon(rng, 48) for _ in range(200)])
    area = masks.mean((1, 2))
    assert masks.min() == 0 and masks.max() == 1
    assert 0.35 <= area.min() < 0.4 and 0.7 < area.max() <= 0.75
