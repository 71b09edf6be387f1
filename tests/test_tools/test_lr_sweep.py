# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The rate that a sweep chooses, and runs without a score."""

import json
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from ..tools import load_tool


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Sweep two splits, with what each run ends in instead of a training.

    A number is its best validation, a text the error that stops it.
    """
    tool = load_tool('analysis_tools/lr_sweep')

    def run(ends):
        def train(command, **_):
            folder = Path(command[command.index('--work-dir') + 1])
            end = ends[folder.name]
            if isinstance(end, str):
                return subprocess.CompletedProcess(command, 1, None, end)
            log = folder / '1' / 'vis_data' / 'scalars.json'
            log.parent.mkdir(parents=True)
            lines = [json.dumps(dict(mIoU=v)) for v in (end, end - 1)]
            log.write_text('\n'.join(lines))
            return subprocess.CompletedProcess(command, 0, None, '')

        monkeypatch.setattr(tool.subprocess, 'run', train)
        splits = dict(lrs=[0.1, 1.0, 10.0, 100.0], splits=['a.txt', 'b.txt'])
        more = dict(metric='mIoU', gpus=1, train_args='', cfg_options=[])
        args = Namespace(config='c.py', work_dir=tmp_path, **splits, **more)
        result = tool.sweep(args)
        return result, tool.format_table(result)

    return run


RATES = {'a_lr_0.1': 40, 'a_lr_1': 50, 'a_lr_10': 30, 'a_lr_100': 'NonFinite'}


def test_the_best_score_chooses_the_rate(sweep):
    result, table = sweep(RATES | {'b_lr_1': 45})
    assert result['lrs'] == {0.1: 40, 1.0: 50, 10.0: 30, 100.0: None}
    assert result['best_lr'] == 1
    assert result['splits'] == {'a.txt': 50, 'b.txt': 45}
    rows = [line.split() for line in table.splitlines()]
    assert ['|', 'lr', '100', '|', 'diverged', '|'] in rows


def test_runs_that_failed_or_diverged_are_said(sweep, capsys):
    failed = RATES | {'a_lr_10': 'KeyError: typo'}
    with pytest.raises(ValueError, match='the training in .*a_lr_10 failed'):
        sweep(failed)
    assert 'KeyError: typo' in capsys.readouterr().err
    for end in ('NonFiniteLossError', 45):
        # Again: what has failed is repeated, what has diverged is not.
        with pytest.raises(ValueError, match='run on b.txt with lr 1 diverg'):
            sweep(RATES | {'b_lr_1': end})
