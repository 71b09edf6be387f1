# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The splits of Cityscapes, the sweep of learning rates, and pictures."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mmengine.registry import init_default_scope
from mmengine.runner import save_checkpoint
from mmseg.apis import MMSegInferencer
from mmseg.registry import MODELS

from ..helpers.cityscapes import LINEAR, small_config
from ..helpers.tools import load_tool, run_tool


@pytest.fixture
def splits():
    return load_tool('dataset_converters/cityscapes_splits')


def test_splits_begin_with_the_public_ids(splits):
    """Numbers stand for the sorted names of the real training set."""
    ids = list(range(splits.NUM_IDS))
    first = {
        seed: splits.draw_split(ids, 100, seed)[0] for seed in splits.SEEDS
    }
    # Cologne begins at 586, Hanover at 1403 and Jena at 1599.
    assert first[12345] == 1599 + 88  # jena/jena_000088_000019
    assert 1403 <= first[23456] < 1599  # hanover/...
    assert first[34567] == 586 + 110  # cologne/cologne_000110_000019
    small, large = (splits.draw_split(ids, n, 12345) for n in (100, 372))
    assert large[:100] == small and len(set(large)) == 372


def run_splits(splits, monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['splits', *map(str, arguments)])
    splits.main()


def test_splits_of_a_tree(splits, streets, tmp_path, monkeypatch, capsys):
    """Splits are drawn as described, and named as in the configs.

    The tool calls them the public splits only if the images are the paper's.
    """
    arguments = streets, '--sizes', 2, '--out', tmp_path
    run_splits(splits, monkeypatch, *arguments)
    assert 'NOT the public splits' in capsys.readouterr().out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f'2_split{i}.txt' for i in range(3)}
    ids = sorted(
        f'{path.parent.name}/{path.name[: -len("_leftImg8bit.png")]}'
        for path in streets.glob('leftImg8bit/train/*/*.png')
    )
    order = np.random.RandomState(23456).permutation(8)[:2]
    expected = ''.join(f'{ids[i]}\n' for i in order)
    assert (tmp_path / '2_split1.txt').read_text() == expected
    for wrong in ('--seeds', 45678), ('--sizes', 100):
        # The split would take the first one's name; there are eight images.
        with pytest.raises(SystemExit):
            run_splits(splits, monkeypatch, *arguments, *wrong)
    capsys.readouterr()
    text = ''.join(f'{name}\n' for name in ids).encode()
    digest = hashlib.sha256(text).hexdigest()
    monkeypatch.setattr(splits, 'CHECKSUM', digest[:16])
    run_splits(splits, monkeypatch, *arguments)
    assert 'NOT' not in capsys.readouterr().out


@pytest.fixture
def sweep(monkeypatch):
    """Load the tool with a stand-in for training: values by rate and split.

    A run writes its log as MMEngine does, and its best value is not the last.
    """
    tool = load_tool('analysis_tools/lr_sweep')
    tool.values = {
        (0.001, 'a.txt'): 30.0,
        (0.01, 'a.txt'): 50.0,
        (0.1, 'a.txt'): 40.0,
        (0.01, 'b.txt'): 53.0,
        (0.01, 'c.txt'): 56.0,
    }
    tool.runs = []

    def train(command, **_):
        options = dict(
            option.split('=')
            for option in command[command.index('--cfg-options') + 1 :]
        )
        lr = float(options['optim_wrapper.optimizer.lr'])
        split = options['train_dataloader.dataset.ann_file'].split('/')[-1]
        tool.runs.append((lr, split))
        folder = Path(command[command.index('--work-dir') + 1])
        best = tool.values.get((lr, split), (os.EX_DATAERR, 'diverged'))
        if isinstance(best, tuple):
            status, printed = best
            return subprocess.CompletedProcess(command, status, None, printed)
        # A resumed run has several logs.
        for part, value in (('1', best), ('2', best - 2)):
            logs = folder / part / 'vis_data'
            logs.mkdir(parents=True)
            lines = map(json.dumps, (dict(loss=1.0), dict(mIoU=value)))
            (logs / 'scalars.json').write_text('\n'.join(lines))
        return subprocess.CompletedProcess(command, 0, None, '')

    monkeypatch.setattr(subprocess, 'run', train)
    return tool


def run_sweep(tool, monkeypatch, folder, *arguments):
    command = (
        f'sweep {__file__} --work-dir {folder} --lrs 0.001 0.01 0.1 1 '
        '--splits splits/a.txt splits/b.txt splits/c.txt'
    )
    monkeypatch.setattr(sys, 'argv', [*command.split(), *arguments])
    tool.main()
    return json.loads((folder / 'sweep.json').read_text())


def test_sweep_tunes_on_the_first_split(sweep, tmp_path, monkeypatch, capsys):
    result = run_sweep(sweep, monkeypatch, tmp_path)
    rates = [(lr, 'a.txt') for lr in (0.001, 0.01, 0.1, 1.0)]
    assert sweep.runs == [*rates, (0.01, 'b.txt'), (0.01, 'c.txt')]
    scores = {'0.001': 30.0, '0.01': 50.0, '0.1': 40.0, '1.0': None}
    assert result['lrs'] == scores
    assert result['best_lr'] == 0.01
    assert result['mean'] == pytest.approx(53)
    assert result['std'] == pytest.approx(np.std([50, 53, 56]))
    table = capsys.readouterr().out
    assert '50.00' in table and 'diverged' in table
    assert '53.00 ± 2.45' in table
    assert (tmp_path / 'sweep.md').read_text() in table

    # The sweep continues where it stopped, and refuses to mix settings.
    assert run_sweep(sweep, monkeypatch, tmp_path) == result
    assert len(sweep.runs) == 6
    with pytest.raises(SystemExit):
        run_sweep(
            sweep, monkeypatch, tmp_path, '--cfg-options', 'train_cfg.a=1'
        )
    assert 'a run with other settings' in capsys.readouterr().err


LAST = 0.01, 'c.txt'


@pytest.mark.parametrize(
    'changed, options, code, message',
    [
        ({}, ['--metric', 'mDice'], 2, 'mDice'),
        ({LAST: (1, 'KeyError: NonFinite')}, [], 2, 'c_lr_0.01 failed'),
        (
            {LAST: (os.EX_DATAERR, 'not finite')},
            ['--gpus', '2'],
            os.EX_DATAERR,
            'splits/c.txt with lr 0.01 diverged',
        ),
        (None, [], os.EX_DATAERR, 'all runs diverged'),
    ],
)
def test_sweep_that_cannot_be_judged(
    sweep, tmp_path, monkeypatch, capsys, changed, options, code, message
):
    sweep.values = {} if changed is None else sweep.values | changed
    with pytest.raises(SystemExit) as ended:
        run_sweep(sweep, monkeypatch, tmp_path, *options)
    assert ended.value.code == code
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_sweep_of_real_runs(streets, tmp_path, monkeypatch):
    """Runs go through tools/train.py, which is usually a new process."""
    run = subprocess.run

    def train(command, **options):
        if command[0] != sys.executable:  # a command that MMEngine runs
            return run(command, **options)
        output = run_tool(*command[1:])
        return subprocess.CompletedProcess(command, 0, output, '')

    monkeypatch.setattr(subprocess, 'run', train)
    config = tmp_path / 'small.py'
    small_config(LINEAR, streets, tmp_path).dump(config)
    command = (
        f'tools/analysis_tools/lr_sweep.py {config} --lrs 0.3 '
        f'--work-dir {tmp_path}/w --cfg-options train_cfg.max_epochs=2 '
        '--cfg-options train_cfg.val_interval=1'
    )
    run_tool(*command.split())
    result = json.loads((tmp_path / 'w' / 'sweep.json').read_text())
    (log,) = (tmp_path / 'w' / 'lr_0.3').glob('*/vis_data/scalars.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    values = [line['mIoU'] for line in lines if 'mIoU' in line]
    assert len(values) == 2 and result['lrs'] == {'0.3': max(values)}


def test_mmseg_draws_pictures(streets, tmp_path):
    """mmseg draws with our config, as docs/guides/segment.md shows."""
    cfg = small_config(LINEAR, streets, tmp_path)
    cfg.dump(tmp_path / 'config.py')
    init_default_scope('mmseg')
    state = MODELS.build(cfg.model).state_dict()
    save_checkpoint(dict(state_dict=state), f'{tmp_path}/model.pth')
    files = f'{tmp_path}/config.py', f'{tmp_path}/model.pth'
    image = next(streets.glob('leftImg8bit/train/jena/*.png'))
    MMSegInferencer(*files, device='cpu')(str(image), out_dir=str(tmp_path))
    assert [path.name for path in (tmp_path / 'vis').iterdir()] == [image.name]
