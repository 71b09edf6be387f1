# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The picture of what a model learnt."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.text import Text

from mmmoca.visualization.neighbours import Neighbours
from mmmoca.visualization.overview import draw_overview
from mmmoca.visualization.pictures import to_picture

from .models import SIZE, small_moca


def images(count):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(
        0, 256, (count, 3, *SIZE), dtype=torch.uint8, generator=generator
    )


def shown(axes):
    return np.asarray(axes.images[0].get_array())


def test_overview():
    model, untrained = small_moca().train(), small_moca()
    bank = [dict(inputs=image) for image in images(9)]
    packed = images(9)[[2, 6]]
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
    for row in range(2):
        picture = to_picture(packed[row])
        np.testing.assert_array_equal(shown(columns[0][row]), picture)
        for column, block in ((6, 0), (7, 0), (8, 1), (9, 1)):
            expected = bank[blocks[block].rows[row][column % 2]]['inputs']
            np.testing.assert_array_equal(
                shown(columns[column][row]), to_picture(expected)
            )
    torch.manual_seed(3)
    masks = model.masking.draw(2, torch.device('cpu'))
    for index, mask in enumerate(masks):
        for row in range(2):
            patches = shown(columns[1 + index][row])[::8, ::8]
            same = (patches == to_picture(packed[row])).all(axis=2)
            same = same.reshape(4, 4, 8, 4).all(axis=(1, 3))
            visible = np.zeros(32, bool)
            visible[mask.visible[row]] = True
            np.testing.assert_array_equal(same.ravel(), visible)
    for axes, color in zip(columns[6] + columns[7], '++--'):
        spine = axes.spines['left']
        expected = dict(zip('+-', ('#2a9d4a', '#d1495b')))[color]
        assert spine.get_visible()
        assert to_hex(spine.get_edgecolor()) == expected
    assert not columns[8][0].spines['left'].get_visible()
    texts = {text.get_text() for text in figure.findobj(Text)}
    assert {'a', 'b', 'x', 'y', 'round 2', 'untrained'} <= texts
    assert model.training and not model.teacher.training


def test_overview_needs_the_size_of_the_training():
    model = small_moca()
    with pytest.raises(ValueError, match=r'\(16, 32\).*\(32, 16\)'):
        draw_overview(model, model, images(1).mT.contiguous())
