# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Sets of letters and shapes."""

import cv2
import numpy as np
import pytest

from tests.tools import contents, load_tool


@pytest.fixture(scope='module')
def tool():
    return load_tool('../projects/rivals/make_glyphs')


def test_every_font_has_every_glyph(tool):
    """A missing glyph would be drawn as an empty box, the same for all."""
    for kind, fonts in dict(letters=18, shapes=1).items():
        for font in tool.FONTS[:fonts]:
            glyphs = [tool.outline(g, font) for g in tool.SETS[kind].values()]
            sizes = {float(np.abs(g[0]).sum()) for g in glyphs}
            assert len(sizes) == len(glyphs) == 12, font
    assert len(tool.FONTS) == 18


@pytest.mark.parametrize('kind', ['letters', 'shapes'])
def test_the_set(tool, tmp_path, kind):
    for name in 'ab':
        assert tool.make_glyphs(tmp_path / name, kind, 24, 12, 24)
    first, again = (contents(tmp_path / name) for name in 'ab')
    assert first == again and len(first) == len(set(first.values())) == 37
    classes = {name.split('/')[1] for name in first if '/' in name}
    assert classes == set(tool.SETS[kind])


def test_shapes_are_whole(tool):
    """Figure and ground have a tone each, and the figure is inside."""
    for label in range(12):
        image = tool.draw(label, np.random.default_rng(label), 96, 'shapes')
        figure = (image > 127) != (image[0, 0] > 127)
        assert np.isin(image, (0, 255)).mean() > 0.9
        assert 0.02 < figure.mean() < 0.5
        assert cv2.connectedComponents(figure.astype(np.uint8))[0] > 1
