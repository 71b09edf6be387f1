# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The picture of what a model learnt."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from torch.nn import functional as F

from mmmoca.visualization import (
    Neighbours,
    dense_patches,
    draw_overview,
    overview,
    pca_colors,
    pick_images,
    to_picture,
)

from ..builders import build_moca

SIZE = (16, 32)


def build(**options):
    model = build_moca(
        backbone__img_size=SIZE,
        backbone__patch_size=4,
        backbone__in_channels=3,
        codebook__num_words=8,
        data_preprocessor=dict(
            type='mmpretrain.SelfSupDataPreprocessor',
            mean=[128] * 3,
            std=[64] * 3,
            to_rgb=True,
        ),
        **options,
    )
    # Words as they are after some steps: tokens of the teacher.
    with torch.no_grad():
        tokens = model.teacher.encode(torch.randn(8, 3, *SIZE)).patches
    model.codebook.words.copy_(F.normalize(tokens[:, 5], dim=1))
    return model


def images(count):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(
        0, 256, (count, 3, *SIZE), dtype=torch.uint8, generator=generator
    )


def test_images_of_different_classes():
    labels = torch.tensor([0] * 50 + [3] * 3 + [1] * 47)
    torch.manual_seed(0)
    picked = pick_images(labels, 100, 3)
    assert labels[picked].tolist() == [0, 1, 3]
    assert labels[pick_images(labels, 100, 8)].tolist() == [
        *(0, 0, 0),
        *(1, 1, 1),
        *(3, 3),
    ]
    torch.manual_seed(0)
    assert pick_images(labels, 100, 3) == picked
    # Any image of a class has its chance.
    draws = {pick_images(labels, 100, 1)[0] for _ in range(30)}
    assert len(draws) > 15
    assert pick_images(labels[:4], 4, 9) == [0, 1, 2, 3]
    assert len(set(pick_images(None, 10, 4))) == 4
    assert pick_images(None, 3, 4) == [0, 1, 2]


def test_neighbours():
    torch.manual_seed(0)
    bank = F.normalize(torch.randn(30, 6), dim=1)
    query = F.normalize(torch.randn(4, 6), dim=1)
    labels = torch.randint(3, (4,)), torch.randint(3, (30,))
    found = Neighbours.search('t', 'set', query, bank, labels, count=7)
    order = (-(query @ bank.T).numpy()).argsort(axis=1)[:, :7]
    assert found.rows == order.tolist()
    expected = labels[1].numpy()[order] == labels[0].numpy()[:, None]
    assert found.same_class == expected.tolist()
    assert found[:2] == ('t', 'set')


def test_neighbours_among_themselves():
    bank = F.normalize(torch.randn(30, 6), dim=1)
    bank[5] = bank[4]
    own = [4, 5, 20]
    found = Neighbours.search('', None, bank[own], bank, own_rows=own)
    similarity = (bank[own] @ bank.T).numpy()
    similarity[range(3), own] = -2
    order = (-similarity).argsort(axis=1)[:, :5]
    assert found.rows == order.tolist()
    assert found.rows[0][0] == 5 and found.rows[1][0] == 4
    assert found.same_class is None


def test_words_of_the_patches():
    model = build()
    inputs = torch.randn(3, 3, *SIZE)
    features, words = overview._feature_maps(model, inputs)
    tokens = dense_patches(model.teacher, inputs, (1, 1))
    assert tokens.shape == (3, *SIZE, 16)
    tokens = F.normalize(tokens, dim=-1).numpy()
    codebook = model.codebook.words.numpy()
    word = np.einsum('nhwd,kd->nhwk', tokens, codebook).argmax(axis=-1)
    assert len(np.unique(word)) > 2
    colors, word_colors = pca_colors(tokens, codebook)
    np.testing.assert_allclose(features, colors, atol=1e-4)
    np.testing.assert_allclose(words, word_colors[word], atol=1e-4)


def shown(axes):
    return np.asarray(axes.images[0].get_array())


def test_overview():
    model, untrained = build().train(), build()
    bank = [dict(inputs=image) for image in images(9)]
    packed = images(9)[[2, 6]]
    blocks = [
        Neighbours('a', bank, [[3, 1], [0, 8]], [[True, False]] * 2),
        Neighbours('b', bank, [[5, 4], [7, 2]]),
    ]
    torch.manual_seed(3)
    figure = draw_overview(model, untrained, packed, blocks, ['x', 'y'])
    # 1 image, 2 rounds, 2 PCA, 1 word, 2 and 2 neighbours in 2 rows.
    columns = [figure.axes[i : i + 2] for i in range(0, 20, 2)]
    assert len(figure.axes) == 20
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
    texts = {text.get_text() for text in figure.texts}
    assert {'a', 'b', 'x', 'y', 'round 2', 'untrained'} <= texts
    assert model.training and not model.teacher.training


def test_overview_of_one_round():
    masking = dict(mask_ratios=[0.5], decoder_mask_ratios=[0.2])
    model = build(masking=masking)
    figure = draw_overview(model, build(), images(3))
    assert len(figure.axes) == 3 * 5


def test_overview_needs_the_size_of_the_training():
    model = build()
    with pytest.raises(ValueError, match=r'\(16, 32\).*\(32, 16\)'):
        draw_overview(model, model, images(1).mT.contiguous())
