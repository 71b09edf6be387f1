# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Every row of the tables is a config that trains; every config is a row."""

import contextlib
import copy
import json
import re
import shutil
import sys

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import MODELS, RUNNERS, init_default_scope

from projects.paper_ablations import run
from projects.paper_ablations.run import CONFIGS, quick_start, table_rows
from tests.helpers.images import point_to
from tests.helpers.runs import NO_VALIDATION, scalars
from tests.helpers.tools import run_tool

ROWS = table_rows()
DEFAULT = 'moca_vit-b16_100e_one-round'
# Each row that is not listed differs from one of these only in numbers, or
# combines parts of several.
TRAINED = [
    DEFAULT,
    'appendixA2_farthest-point',
    'codebook_average-token',
    'masking_independent-rounds',
    'table1b_full-decoding',
    'table2a_img-only',
    'table2a_no-condenser',
    'table2d_cls',
    'table3_embeddings',
    'table3_pixels',
    'table8c_both-decoders',
    'table8f_pixels_both-decoders',
]


def test_rows_are_configs():
    assert set(ROWS) == {path.stem for path in CONFIGS.glob('*.py')}
    for what, paper in ROWS.values():
        assert what
        assert paper == '-' or 10 < float(paper) < 80


@pytest.mark.slow
@pytest.mark.parametrize('name', ROWS)
def test_row_builds_at_full_size(no_first_weights, name):
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    assert model.backbone.embed_dims == 768
    default = Config.fromfile(CONFIGS / f'{DEFAULT}.py')
    differs = cfg.model.to_dict() != default.model.to_dict()
    assert differs == (name not in (DEFAULT, 'table3_assignments'))
    assert cfg.train_cfg.max_epochs == (200 if 'table3' in name else 100)


class Start(Hook):
    """Keeps the state with which training starts."""

    def before_train(self, runner):
        self.state = copy.deepcopy(runner.model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize('name', TRAINED)
def test_row_trains(root, name):
    cfg = quick_start(name)
    point_to(cfg, root)
    cfg.merge_from_dict(
        {
            'work_dir': f'{root}/{name}',
            'experiment_name': name,
            'train_dataloader.batch_size': 16,
            'train_cfg.max_iters': 2,
            'train_cfg.val_interval': 2,
            'default_hooks.logger.interval': 1,
            'log_level': 'ERROR',
            **NO_VALIDATION,
        }
    )
    runner = RUNNERS.build(cfg)
    start = Start()
    runner.register_hook(start)
    runner.train()
    weight = cfg.model.head.get('lambda_img', 0.5)
    hub = runner.message_hub.log_scalars
    assert ('train/loss_img' in hub) == (weight > 0)
    assert ('train/loss_loc' in hub) == (weight < 1)
    losses = scalars(runner, 'train/loss')
    assert len(losses) == 2 and all(0 < loss < 30 for loss in losses)
    before, after = start.state, runner.model.state_dict()
    words = (before['codebook.words'] != after['codebook.words']).any(dim=1)
    assert words.sum() == 2 * cfg.model.codebook.num_new_words
    for part in ('backbone', 'head', 'neck'):
        weights = [key for key in after if key.startswith(f'{part}.')]
        assert all(after[key].isfinite().all() for key in weights)
        moved = [k for k in weights if not torch.equal(before[k], after[k])]
        assert bool(moved) == bool(weights), part


class Serial(contextlib.AbstractContextManager):
    """A pool without threads, for programs that run in this process."""

    map = staticmethod(map)

    def __init__(self, _):
        """Take the number of threads, as pools do."""

    def __exit__(self, *_):
        """Do nothing, since there are no threads to wait for."""


def run_here(name, *arguments, log, threads):
    """Run a program of the repository in this process."""
    log.write_text(run_tool(name, *arguments))


def test_a_program_that_fails(tmp_path):
    with pytest.raises(RuntimeError, match='train.py'):
        run.tool('tools/train.py', '--x', log=tmp_path / 'log', threads=1)
    assert 'error' in (tmp_path / 'log').read_text()


@pytest.mark.slow
def test_command(root, tmp_path, monkeypatch, capsys):
    """Each row is trained once; the table shows what the runs logged."""
    monkeypatch.setattr(run, 'ThreadPoolExecutor', Serial)
    monkeypatch.setattr(run, 'tool', run_here)
    (tmp_path / 'textures').symlink_to(root)
    first, second = 'table2a_img-only', 'table3_pixels'

    def table(*rows):
        command = ['run', tmp_path, '--seeds', '1', '--steps', '8']
        command += ['--jobs', '1', '--rows', *rows]
        monkeypatch.setattr(sys, 'argv', [*map(str, command)])
        run.main()
        *lines, blank, warning = capsys.readouterr().out.splitlines()
        runs = len(rows) if run.tool is None else 1
        assert warning.startswith(f'- {runs} of {runs} runs') and not blank
        return lines

    def work(name):
        return tmp_path / f'{name}_steps_8_seed_0'

    def cells(name, paper):
        values = f'{run.accuracy(work(name)):.1f}', paper
        return [f'`{name}`', ROWS[name][0], *values]

    # At this size, both rows of the table are the same run.
    *_, line = table(first, 'table3_img-only')
    assert re.split(r' *\| *', line.strip('| ')) == cells(first, '66.8')
    assert (work(first) / 'iter_8.pth').is_file()
    assert [*tmp_path.glob('*_seed_0')] == [work(first)]
    # Pretend that the second row has been trained, too. Any new training would
    # fail.
    shutil.copytree(work(first), work(second))
    (log,) = work(second).glob('*/vis_data/scalars.json')
    log.write_text(json.dumps({run.ACCURACY: 12.34}))
    monkeypatch.setattr(run, 'tool', None)
    *_, same, line = table(first, second)
    assert re.split(r' *\| *', same.strip('| ')) == cells(first, '66.8')
    assert re.split(r' *\| *', line.strip('| ')) == cells(second, '72.3')
    assert cells(second, '72.3')[2] == '12.3'


@pytest.mark.parametrize('arguments', [['--rows', 'x'], ['--seeds', '0']])
def test_bad_arguments(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['run', str(tmp_path), *arguments])
    with pytest.raises(SystemExit):
        run.main()
    assert arguments[0] in capsys.readouterr().err
