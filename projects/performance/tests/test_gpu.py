# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The command for GPUs, rehearsed without one."""

import re
from pathlib import Path

import pytest
import torch

import gpu


@pytest.mark.slow
@pytest.mark.processes
def test_rehearsal(tmp_path, capsys):
    """Each program that the parts run, once, on a CPU."""
    arguments = ['--device', 'cpu', '--tiny', '--out', str(tmp_path)]
    names = 'eager', 'photos', 'distributed', 'embedding'
    code = gpu.main([*arguments, '--minutes', '30', '--parts', *names])
    printed = capsys.readouterr().out
    assert code == 0, printed
    ended = re.findall(r'^=== (\w+): done', printed, re.M)
    assert ended == [*names]
    (rate,) = re.findall(r'^([\d.]+) images/s, a step waits', printed, re.M)
    assert float(rate) > 0


@pytest.mark.processes
def test_a_part_that_fails_or_has_no_time(tmp_path, monkeypatch, capsys):
    commands = dict(
        bad='-c "raise SystemExit(3)"',
        good='-c "print(3 + 4)"',
        late='-c "import time; time.sleep(99)"',
    )
    monkeypatch.setattr(gpu, 'parts', lambda *_: commands)
    arguments = ['--device', 'cpu', '--tiny', '--out', str(tmp_path)]
    assert gpu.main([*arguments, '--minutes', '.05']) == 1
    printed = capsys.readouterr().out
    for end in ('bad: FAILED (3)', 'good: done', 'late: FAILED (124)'):
        assert f'=== {end}' in printed
    assert printed.endswith('--parts bad late\n')
    assert (tmp_path / 'good.txt').read_text() == '7\n'


def test_parts_name_files_that_are_there():
    """Those of all tests that are marked for GPUs, too."""
    for command in gpu.parts('cuda', False, Path()).values():
        for word in command.split():
            assert not word.endswith('.py') or (gpu.ROOT / word).is_file()
    marked = {
        str(file.relative_to(gpu.ROOT))
        for folder in ('tests', 'projects')
        for file in (gpu.ROOT / folder).rglob('test_*.py')
        if re.search(r'pytest\.mark\.gpu,?$', file.read_text(), re.M)
    }
    assert marked == {*gpu.TESTS}


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_what_is_missing(tmp_path, monkeypatch, capsys):
    for arguments in ([], ['--device', 'cpu']):
        with pytest.raises(SystemExit):
            gpu.main([*arguments, '--out', str(tmp_path)])
    assert 'add --tiny' in capsys.readouterr().err
    monkeypatch.setattr(gpu, 'NEEDED', ('torch', 'no_such_module'))
    with pytest.raises(SystemExit):
        gpu.main(['--out', str(tmp_path)])
    assert 'no_such_module' in capsys.readouterr().err
