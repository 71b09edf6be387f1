# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tool that draws subset lists."""

from collections import Counter

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
