# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The folder of a drawn set: whole, once, and never over something else."""

import json
import resource

import pytest

from ..tools import load_tool


@pytest.fixture
def draw(tmp_path):
    tool = load_tool('dataset_converters/_drawn_set')

    def make(seed=0, fail=False):
        about = dict(train=2, val=1, seed=seed)
        with tool.drawn_set(tmp_path / 'deep' / 'set', about) as root:
            if root is None:
                return False
            for name in ('train/0.jpg', 'train/1.jpg', 'val/0.jpg'):
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(name)
            if fail:
                raise KeyboardInterrupt
        return True

    return make


def test_a_set_is_made_once_and_its_like_is_kept(draw, tmp_path, capsys):
    out = tmp_path / 'deep' / 'set'
    out.mkdir(parents=True)
    assert draw()  # into an empty folder
    assert '2 training and 1 validation images' in capsys.readouterr().out
    assert json.loads((out / 'meta.json').read_text())['seed'] == 0
    times = {p: p.stat().st_mtime_ns for p in out.rglob('*')}
    assert not draw()
    assert 'nothing to do' in capsys.readouterr().out
    with pytest.raises(FileExistsError, match='something else'):
        draw(seed=1)
    assert times == {p: p.stat().st_mtime_ns for p in out.rglob('*')}


def test_a_file_in_its_place_is_kept(draw, tmp_path):
    (tmp_path / 'deep').mkdir()
    (tmp_path / 'deep' / 'set').write_text('mine')
    with pytest.raises(FileExistsError, match='something else'):
        draw()
    assert (tmp_path / 'deep' / 'set').read_text() == 'mine'


def test_images_that_cannot_be_written_are_an_error(tmp_path):
    make = load_tool('dataset_converters/make_digits').make_digits
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match='large'):
            make(tmp_path / 'set', limit=4, size=96)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_interrupted_drawing_leaves_nothing(draw, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        draw(fail=True)
    assert not list((tmp_path / 'deep').iterdir())
