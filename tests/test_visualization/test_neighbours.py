# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images to be shown, and their neighbours."""

import torch
from torch.nn import functional as F

from mmmoca.visualization.neighbours import Neighbours, pick_images


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
