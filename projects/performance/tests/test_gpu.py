# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The command for GPUs, rehearsed without one."""

import pytest
import torch

import gpu


@pytest.mark.slow
@pytest.mark.processes
def test_rehearsal(tmp_path):
    """Each program that the parts run, once, on a CPU."""
    arguments = ['--device', 'cpu', '--tiny', '--out', str(tmp_path)]
    names = 'step', 'photos', 'distributed', 'embedding'
    code = gpu.main([*arguments, '--minutes', '30', '--parts', *names])
    report = (tmp_path / 'report.txt').read_text()
    assert code == 0, report
    for name in names:
        assert f'=== {name}: status 0' in report


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
    assert '\n7\n=== good: status 0' in printed
    assert printed.endswith('--parts bad late\n')


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_no_gpu(tmp_path, capsys):
    for arguments in ([], ['--device', 'cpu']):
        with pytest.raises(SystemExit):
            gpu.main([*arguments, '--out', str(tmp_path)])
    assert 'add --tiny' in capsys.readouterr().err
