# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The folder of a drawn set: whole, once, and never over something else."""

import json
import resource

import pytest

from ..helpers.tools import load_tool


def test_a_set_is_made_once_and_its_like_is_kept(tmp_path, capsys):
    tool = load_tool('drawn_sets/_drawn_set')
    out = tmp_path / 'deep' / 'set'

    def draw(seed=0, fail=False):
        with tool.drawn_set(out, dict(train=1, val=1, seed=seed)) as root:
            if root is None:
                return False
            (root / 'image').write_text('drawn')
            if fail:
                raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        draw(fail=True)
    assert not list(out.parent.iterdir())
    out.mkdir()
    assert draw()  # into an empty folder
    assert '1 training and 1 validation images' in capsys.readouterr().out
    assert json.loads((out / 'meta.json').read_text())['seed'] == 0
    times = {p: p.stat().st_mtime_ns for p in out.rglob('*')}
    assert not draw()
    assert 'nothing to do' in capsys.readouterr().out
    with pytest.raises(FileExistsError, match='something else'):
        draw(seed=1)
    assert times == {p: p.stat().st_mtime_ns for p in out.rglob('*')}


def test_images_that_cannot_be_written_are_an_error(tmp_path):
    make = load_tool('drawn_sets/make_digits').make_digits
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match='large'):
            make(tmp_path / 'set', limit=4, size=96)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
