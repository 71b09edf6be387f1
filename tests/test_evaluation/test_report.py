# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tables, and files that appear whole or not at all."""

import json

import pytest

from mmmoca.evaluation.report import render_table, write_json, write_whole


def test_table_is_markdown():
    table = render_table(['set', 'top-1 (%)'], [['a' * 90, '1.0'], ['b', '2']])
    lines = table.splitlines()
    assert len(lines) == 4 and len(set(map(len, lines))) == 1
    assert [cell.strip() for cell in lines[0].split('|')[1:-1]] == [
        'set',
        'top-1 (%)',
    ]
    assert set(lines[1]) <= set('|-:')
    assert lines[3].endswith('|         2 |')


def test_json_replaces_an_older_one(tmp_path):
    path = tmp_path / 'new' / 'a.json'
    for number in (1, 2):
        write_json(path, dict(number=number))
        assert json.loads(path.read_text()) == dict(number=number)
    assert list(path.parent.iterdir()) == [path]


def test_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / 'a.txt'
    path.write_text('old')

    def fail(temporary):
        temporary.write_text('half')
        raise OSError('disk full')

    with pytest.raises(OSError, match='disk full'):
        write_whole(path, fail)
    with pytest.raises(TypeError):
        write_json(path, dict(number=object()))
    assert path.read_text() == 'old'
    assert list(tmp_path.iterdir()) == [path]
