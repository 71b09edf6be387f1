# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmmoca.evaluation.report import render_table


def test_table_is_markdown():
    table = render_table(['set', 'top-1'], [['a' * 90, '1.0'], ['b', '2']])
    lines = table.splitlines()
    assert len(lines) == 4 and len(set(map(len, lines))) == 1
    assert set(lines[1]) <= set('|-:')
    assert lines[3].endswith('|     2 |')
