# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tools that draw subset lists and write the digits."""

import sys
from collections import Counter

import cv2
import numpy as np
import pytest
from sklearn.datasets import load_digits

from mmmoca.evaluation.subsets import read_subset
from tests.images import write_images
from tests.tools import load_tool

CLASSES = ('class_0', 'class_1', 'class_2')


@pytest.fixture(scope='module')
def tools():
    return tuple(
        load_tool(f'dataset_converters/make_{name}')
        for name in ('subset', 'digits')
    )


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp('images')
    write_images(root, train=20, val=1)
    return root


def test_command_line(tools, root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys,
        'argv',
        f'make_subset {root}/train {tmp_path}/lists --shots 1 4 --sets 2 '
        '--percent 10 50 --seed 7'.split(),
    )
    tools[0].main()
    sizes = {
        f'{shots}shot_set{number}.txt': shots
        for shots in (1, 4)
        for number in (0, 1)
    } | {'10percent.txt': 2, '50percent.txt': 10}
    # mmpretrain may say on its import what else it could not import.
    printed = capsys.readouterr().out.split()[-len(sizes) :]
    assert printed == [f'{tmp_path}/lists/{name}' for name in sizes]
    assert {p.name for p in (tmp_path / 'lists').iterdir()} == set(sizes)
    lists = {}
    for name, size in sizes.items():
        # The loop reads what the tool writes.
        lists[name] = read_subset(
            f'{tmp_path}/lists/{name}', f'{root}/train', CLASSES
        )
        assert Counter(lists[name].values()) == dict.fromkeys(range(3), size)
    assert lists['4shot_set0.txt'] != lists['4shot_set1.txt']

    again = tools[0].make_subsets(
        root / 'train', tmp_path / 'again', (4,), (), 2, 7
    )
    for path in again:
        assert path.read_text() == (tmp_path / 'lists' / path.name).read_text()


def test_digits(tools, tmp_path, capsys, monkeypatch):
    out = tmp_path / 'deep' / 'digits'
    monkeypatch.setattr(sys, 'argv', f'make_digits {out} --size 8'.split())
    tools[1].main()
    assert '1347 training and 450 validation images' in capsys.readouterr().out
    digits = load_digits()
    files = sorted(out.glob('*/*/*.png'), key=lambda path: path.stem)
    assert len(files) == 1797
    for number in (0, 1, 2, 1796):
        path = files[number]
        split = 'val' if number % 4 == 0 else 'train'
        assert path.parts[-3:-1] == (split, str(digits.target[number]))
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        np.testing.assert_allclose(
            image, digits.images[number] * 255 / 16, atol=0.5
        )
    assert list(out.parent.iterdir()) == [out]
