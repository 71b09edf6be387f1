# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images to be shown, and their neighbours."""

import torch
from torch.nn import functional as F

from mmmoca.visualization.neighbours import Neighbours, pick_images


def test_images_of_different_classes():
    labels = torch.tensor([0] * 50 + [3] * 3 + [1] * 47)
    assert labels[pick_images(labels, 100, 8)].tolist() == [
        *(0, 0, 0),
        *(1, 1, 1),
        *(3, 3),
    ]
    # Any image of a class has its chance.
    draws = {pick_images(labels, 100, 1)[0] for _ in range(30)}
    assert len(draws) > 15
    assert pick_images(None, 3, 4) == [0, 1, 2]


def test_neighbours():
    torch.manual_seed(0)
    bank = F.normalize(torch.randn(30, 6), dim=1)
    bank[5] = bank[4]
    labels, own = torch.randint(3, (30,)), [4, 5, 20]
    given = '', None, bank[own], bank
    similarity = (bank[own] @ bank.T).numpy()
    similarity[range(3), own] = -2
    order = (-similarity).argsort(axis=1)
    found = Neighbours.search(*given, own_rows=own)
    assert found.rows == order[:, :5].tolist() and found.same_class is None
    # Of images that are not in the bank.
    found = Neighbours.search(*given, (labels[own], labels), count=7)
    assert [row[0] for row in found.rows] == [4, 4, 20]
    assert [row[1:] for row in found.rows[::2]] == order[::2, :6].tolist()
    expected = labels[torch.tensor(found.rows)] == labels[own][:, None]
    assert found.same_class == expected.tolist()
