# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The figures of the drawn shapes, and their set."""

import cv2
import numpy as np
import pytest

from tests.tools import contents, load_tool


@pytest.fixture(scope='module')
def tool():
    return load_tool('../projects/rivals/make_shapes')


def test_figures_are_whole_and_of_one_size(tool):
    for name, outline in tool._OUTLINES.items():
        mask = tool.coverage([0.3 * c + 0.5 for c in outline], 96)
        y, x = np.nonzero(mask > 0.5)
        reach = np.hypot(y - 47.5, x - 47.5).max()
        radius = (mask.sum() / np.pi) ** 0.5
        # Unit size is 0.3 of 96 pixels here.
        assert (reach * radius) ** 0.5 == pytest.approx(28.8, rel=0.06), name
        contours, _ = cv2.findContours(
            (mask > 0.5).astype(np.uint8),
            cv2.RETR_CCOMP,
            cv2.CHAIN_APPROX_NONE,
        )
        assert len(contours) == 1 + (name == 'ring')


def test_figures_fit_into_the_image(tool):
    rng = np.random.default_rng(0)
    extents = [
        np.ptp(tool._turned(label, rng, tool.RADIUS)[0], axis=0).max()
        for label in range(12)
        for _ in range(200)
    ]
    assert min(extents) > 0.5 and max(extents) < 1


def test_clutter(tool, tmp_path):
    """Without it figure and ground have a tone each, and stay in place."""
    for label in range(12):
        plain, full, default = (
            tool.draw(label, np.random.default_rng(label), 48, *clutter)
            for clutter in ([0], [1], [])
        )
        assert np.array_equal(full, default)
        # All pixels but those of the edge.
        assert np.isin(plain, (0, 255)).mean() > 0.75
        assert len(np.unique(full)) > 100
        figure = plain == np.median(plain[len(plain) // 2])
        assert abs(full[figure].mean() - full[~figure].mean()) > 10
    with pytest.raises(ValueError, match='clutter must be within 0 and 1'):
        tool.make_shapes(tmp_path / 'set', clutter=1.5)


def test_the_set(tool, tmp_path):
    for name in 'ab':
        assert tool.make_shapes(tmp_path / name, train=24, val=12, size=24)
    first, again = (contents(tmp_path / name) for name in 'ab')
    assert first == again and len(first) == len(set(first.values())) == 37
    assert {name.split('/')[1] for name in first if '/' in name} == set(
        tool.CLASSES
    )
