# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

import pytest

from mmmoca.files import atomic_write, read_lines, write_json, write_text


def test_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / 'a.txt'
    write_text(path, 'old')
    with (
        pytest.raises(OSError, match='disk full'),
        atomic_write(path) as temporary,
    ):
        temporary.write_text('half')
        raise OSError('disk full')
    with pytest.raises(TypeError):
        write_json(path, dict(number=object()))
    assert path.read_text() == 'old'
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('pathlib.Path.write_text', full)
    with pytest.raises(OSError, match='a.txt'):
        write_text(tmp_path / 'a.txt', 'new')


@pytest.mark.parametrize(
    'encoding', ['utf-8', 'utf-8-sig', 'utf-16', 'utf-16-le', 'utf-16-be']
)
def test_lists_of_any_system(tmp_path, encoding):
    path = tmp_path / 'list.txt'
    path.write_bytes('a\u2028b.jpg\r\n\n ü 1'.encode(encoding))
    assert [*read_lines(path)] == ['a\u2028b.jpg', '', ' ü 1']


@pytest.mark.parametrize(
    'content', ['ü'.encode('latin-1'), 'abc'.encode('utf-16')[:-1]]
)
def test_other_lists_are_named(tmp_path, content):
    (tmp_path / 'list.txt').write_bytes(content)
    with pytest.raises(ValueError, match='list.txt'):
        [*read_lines(tmp_path / 'list.txt')]
