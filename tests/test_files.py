# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

import pytest

from mmmoca.files import atomic_write, write_json, write_text


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
