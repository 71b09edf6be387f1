# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tools that draw subset lists and write the digits."""

from collections import Counter

import cv2
import numpy as np
from sklearn.datasets import load_digits

from mmmoca.evaluation.subsets import read_subset

from ..helpers.tools import contents, run_tool

CLASSES = ('class_0', 'class_1', 'class_2')


def test_command_line(root, tmp_path):
    def lists(name, *options):
        line = root / 'train', tmp_path / name, '--seed', 7, *options
        run_tool('tools/dataset_converters/make_subset.py', *line)
        return contents(tmp_path / name)

    draw = '--shots', 1, 4, '--percent', 10, 50
    written = lists('a', *draw, '--sets', 2)
    sizes = {f'{n}shot_set{i}.txt': n for n in (1, 4) for i in (0, 1)}
    sizes |= {'10percent.txt': 2, '50percent.txt': 8}
    assert written.keys() == sizes.keys()
    for name, size in sizes.items():
        # The loop reads what the tool writes.
        path = str(tmp_path / 'a' / name)
        found = read_subset(path, str(root / 'train'), CLASSES)
        assert Counter(found.values()) == dict.fromkeys(range(3), size)
    assert written['4shot_set0.txt'] != written['4shot_set1.txt']
    again = lists('b', '--shots', 4, '--percent')
    assert len(again) == 3  # sets
    assert again['4shot_set1.txt'] == written['4shot_set1.txt']


def test_digits(tmp_path):
    out = tmp_path / 'deep' / 'digits'
    run_tool('tools/drawn_sets/make_digits.py', out, '--size', 8)
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
