# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rehearse gpu.py without a GPU."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

import gpu
import measure
import training_step
from tests.helpers.tools import run_tool


@pytest.fixture
def imported_once(monkeypatch):
    """Run a part in this process if it is a program of the repository.

    Other parts, such as those with several processes, start as usual.
    """
    start, threads = gpu.subprocess.run, torch.get_num_threads()

    def run(command, **options):
        words = command[command.index(sys.executable) + 1 :]
        if not words[0].endswith('.py'):
            return start(command, **options)
        # The program may start processes of its own.
        with monkeypatch.context() as patch:
            patch.setattr(gpu.subprocess, 'run', start)
            options['stdout'].write(run_tool(*words))
        return gpu.subprocess.CompletedProcess(command, 0)

    def call(function, *arguments):
        return function(*arguments)

    monkeypatch.setattr(gpu.subprocess, 'run', run)
    monkeypatch.setattr(measure, 'apart', call)
    # test_step.py tests the count.
    monkeypatch.setattr(training_step, 'count_flops', lambda *_: 1e9)
    monkeypatch.chdir(gpu.ROOT)
    yield
    torch.set_num_threads(threads)


@pytest.mark.release
@pytest.mark.parametrize(
    'names',
    [
        ('photos', 'recipe-eager'),
        ('attention', 'eager', 'profile', 'banks', 'embedding'),
    ],
)
def test_rehearsal(tmp_path, capsys, imported_once, names):
    """Most of the parts' programs run once, on a CPU."""
    arguments = ['--device', 'cpu', '--tiny', '--out', str(tmp_path)]
    code = gpu.main([*arguments, '--minutes', '30', '--parts', *names])
    assert code == 0, (tmp_path / 'report.txt').read_text()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    printed = [row[0] for row in rows if row and row[0] in names]
    assert list(dict.fromkeys(printed)) == [*names]
    if 'photos' in names:
        numbers = {row[0]: row for row in rows if row}['recipe-eager']
        images, waited = map(float, numbers[1:3])
        assert min(images, waited) > 0


def test_share_of_the_rate_of_a_product(tmp_path, capsys):
    table = gpu.Table(tmp_path, 4)
    rates = dict(matrix={'TFLOP/s': 800.0}, eager={'TFLOP/s': 200.0})
    rates['eager'] |= {'images/s': 1000.0, 'part': 'ours'}
    for name, figures in rates.items():
        (tmp_path / f'{name}.json').write_text(json.dumps([figures]))
        table.add(name, 7.2, 0)
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split() == ['eager', 'ours', '1000', '200', '25', '7']


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
    assert 'bad FAILED (3)' in printed and 'late FAILED (124)' in printed
    assert printed.endswith('--parts bad late\n')
    assert '\n7\n=== good' in (tmp_path / 'report.txt').read_text()


def test_parts_name_files_that_are_there():
    """The parts also name every test file with a test marked for GPUs."""
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
