# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The picture of what a model learnt."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.text import Text
from mmengine.config import Config

from mmmoca.visualization.gallery import pick_images
from mmmoca.visualization.overview import draw_overview
from mmmoca.visualization.tiles import Panel, draw_tiles

from ..helpers.images import DEMO_CONFIG, point_to, write_images
from ..helpers.runs import demo_model


def test_pictures_are_of_one_size_and_panels_stand_apart():
    picture = np.zeros((8, 16, 3))
    panels = [
        Panel('a', ['', ''], [[picture] * 2, [picture]]),
        Panel('b', [''], [[picture]] * 2, [[True], [False]]),
    ]
    figure = draw_tiles(panels, ['r', 's'], 0.5)
    places = [
        image.get_window_extent().bounds
        for axes in figure.axes
        for image in axes.images
    ]
    assert len({tuple(np.round(place[2:], 6)) for place in places}) == 1
    first, second, third = (places[i][0] for i in (0, 1, 3))
    width, height = places[0][2:]
    assert height == pytest.approx(width / 2)
    assert 0 < 4 * (second - first - width) < third - second - width
    assert places[2][1] < places[0][1]  # below
    frames = figure.axes[1].patches
    colors = [to_hex(frame.get_edgecolor()) for frame in frames]
    assert colors == ['#2a9d4a', '#d1495b'] and not figure.axes[0].patches


@pytest.mark.slow
@pytest.mark.parametrize('labelled', [True, False])
def test_overview_of_a_checkpoint(tmp_path, labelled):
    """It names files, images and checkpoint, and spreads over folders.

    A recipe chose the number of words, which the checkpoint tells.
    """
    write_images(tmp_path, train=4, val=3, classes=2)
    torch.save(dict(state_dict=demo_model().state_dict()), tmp_path / 'a.pth')
    cfg = Config.fromfile(DEMO_CONFIG)
    point_to(cfg, tmp_path)
    cfg.model.codebook.update(num_words='auto', num_new_words='auto')
    data = None if labelled else str(tmp_path / 'val')
    given = cfg, str(tmp_path / 'a.pth'), data, 6, 7, 0
    figure = draw_overview(*given)
    texts = [text.get_text() for text in figure.findobj(Text)]
    rows = [text.split('\n')[0] for text in texts if '.jpg' in text]
    assert rows == ['class_0'] * 3 + ['class_1'] * 3
    assert 'masks' not in texts
    bank, number = ('train', 7) if labelled else ('val', 6)
    assert any('a.pth' in text and f'{tmp_path}/val' in text for text in texts)
    legend = f' {number} images drawn from {tmp_path}/{bank}'
    assert any(legend in text for text in texts)
    framed = sum((list(axes.patches) for axes in figure.axes), [])
    assert len(framed) == 60 * labelled
    if labelled:
        for path in (tmp_path / 'val').glob('*/[01].jpg'):
            path.write_text('none')
        texts = [t.get_text() for t in draw_overview(*given).findobj(Text)]
        assert sum('.jpg' in text for text in texts) == 2


def test_images_of_different_classes():
    labels = [0] * 50 + [3] * 3 + [1] * 47
    picked = [labels[index] for index in pick_images(labels, 9)]
    assert picked == [0, 0, 0, 1, 1, 1, 3, 3, 3]
    # Any image of a class has its chance.
    assert len({pick_images(labels, 1)[0] for _ in range(30)}) > 15
    assert pick_images('aaa', 4) == [0, 1, 2]
