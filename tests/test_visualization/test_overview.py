# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The picture of what a model learnt."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.text import Text
from PIL import Image

from mmmoca.datasets import ImageFolder, LoadImage
from mmmoca.visualization.checkpoint_overview import _readable
from mmmoca.visualization.neighbours import Neighbours
from mmmoca.visualization.overview import draw_overview
from mmmoca.visualization.pictures import to_picture

from .models import SIZE, small_moca


def test_overview():
    model, untrained = small_moca().train(), small_moca()
    images = torch.randint(0, 256, (9, 3, *SIZE), dtype=torch.uint8)
    bank, packed = [dict(inputs=image) for image in images], images[[2, 6]]
    blocks = [
        Neighbours('a', bank, [[3, 1], [0, 8]], [[True, False]] * 2),
        Neighbours('b', bank, [[5, 4], [7, 2]]),
    ]
    torch.manual_seed(3)
    figure = draw_overview(model, untrained, packed, blocks, ['x', 'y'])
    # 1 image, 2 rounds, 2 PCA, 1 word, 2 and 2 neighbours in 2 rows.
    columns = [
        (axes, below)
        for part in figure.subfigs
        for axes, below in zip(*np.reshape(part.axes, (2, -1)))
    ]
    assert len(columns) == 10
    shown = [
        [np.asarray(axes.images[0].get_array()) for axes in column]
        for column in columns
    ]
    for column, rows in ((0, (2, 6)), (6, (3, 0)), (7, (1, 8)), (9, (4, 2))):
        expected = [to_picture(images[row]) for row in rows]
        np.testing.assert_array_equal(shown[column], expected)
    torch.manual_seed(3)
    masks = model.masking.draw(2, torch.device('cpu'))
    for column, mask in enumerate(masks, start=1):
        for row in range(2):
            patches = shown[column][row][::8, ::8]
            same = (patches == to_picture(packed[row])).all(axis=2)
            same = same.reshape(4, 4, 8, 4).all(axis=(1, 3))
            visible = set(np.flatnonzero(same))
            assert visible == set(mask.visible[row].tolist())
    for column, color in ((6, '#2a9d4a'), (7, '#d1495b')):
        for axes in columns[column]:
            spine = axes.spines['left']
            assert (
                spine.get_visible() and to_hex(spine.get_edgecolor()) == color
            )
    assert not columns[8][0].spines['left'].get_visible()
    texts = {text.get_text() for text in figure.findobj(Text)}
    assert {'a', 'b', 'x', 'y', 'round 2', 'untrained'} <= texts
    assert model.training and not model.teacher.training
    with pytest.raises(ValueError, match=r'\(16, 32\).*\(32, 16\)'):
        draw_overview(model, untrained, packed.mT)


def test_unreadable_images_are_left_out(tmp_path):
    for name in 'abcd':
        Image.new('RGB', (8, 8)).save(tmp_path / f'{name}.png')
    (tmp_path / 'b.png').write_text('none')
    images = ImageFolder(tmp_path, with_label=False, pipeline=[LoadImage()])
    with pytest.warns(UserWarning, match='1 of 3 images.*b.png'):
        assert _readable(images, [2, 1, 3]) == [2, 3]
    with pytest.raises(OSError, match='b.png'):
        _readable(images, [1])
