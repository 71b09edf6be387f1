# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Sets of letters and shapes."""

import numpy as np
import pytest

from tests.helpers.tools import contents, load_tool


@pytest.mark.parametrize(('kind', 'fonts'), [('letters', 18), ('shapes', 1)])
def test_the_set(kind, fonts, tmp_path):
    tool = load_tool('../projects/rivals/make_glyphs')
    # A missing glyph would be drawn as an empty box, the same for all.
    for font in tool.FONTS[:fonts]:
        glyphs = [tool.outline(g, font) for g in tool.SETS[kind].values()]
        assert len({float(np.abs(g[0]).sum()) for g in glyphs}) == 12, font
    for name in 'ab':
        assert tool.make_glyphs(
            tmp_path / name, kind, train=24, val=12, size=24
        )
    first, again = (contents(tmp_path / name) for name in 'ab')
    assert first == again and len(first) == len(set(first.values())) == 37
    classes = {name.split('/')[1] for name in first if '/' in name}
    assert classes == set(tool.SETS[kind])
