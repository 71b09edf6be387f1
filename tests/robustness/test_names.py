# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names that others chose: in lists, in messages and on command lines."""

import re
import shlex
import subprocess
import tarfile
from unittest import mock

import pytest
from matplotlib.figure import Figure
from PIL import Image

from mmmoca.checkpoints import CheckpointError
from mmmoca.datasets import ImageFolder, ImageShards, LoadImage
from mmmoca.engine import ConsoleRunner
from mmmoca.evaluation.report import render_table
from mmmoca.evaluation.subsets import read_subset
from mmmoca.files import outside, write_figure

from ..helpers.tools import ROOT, load_tool

HOSTILE = 'a\x1b[2J\u202eb'


def test_outside(tmp_path):
    paths = ['d/a', 'd/b/../a', 'd/a..b', 'd/../../d/a', '/d/a', 'e']
    assert outside('d', paths) == ['d/b/../a', 'd/../../d/a', '/d/a', 'e']
    assert outside('/d', ['/d/a', '/d/../a']) == ['/d/../a']
    assert outside('', paths) == []
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd' / 'loop').symlink_to(tmp_path / 'd')
    root = f'{tmp_path}/d'
    assert outside(root, [f'{root}/loop/a']) == []
    for name in ('loop/../a', 'a\0b', 'file:///a'):
        assert outside(root, [f'{root}/{name}'])


def test_lists_that_lead_out(tmp_path):
    root = tmp_path / 'root'
    for name in ('a/0.png', 'b/0.png', '../out.png'):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 8)).save(root / name)
    path = tmp_path / 'list'
    path.write_text('a/0.png\nb/0.png\n../out.png\n')
    with pytest.raises(ValueError, match='out.png'):
        read_subset(str(path), str(root), ('a', 'b'))
    options = dict(ann_file=str(path), with_label=False, pipeline=[])
    with pytest.raises(ValueError, match='out.png'):
        ImageFolder(str(root), **options)
    # Absolute paths are below the root of the file system.
    path.write_text(f'{root}/a/0.png\n{tmp_path}/out.png\n')
    assert len(ImageFolder('/', **options)) == 2
    with pytest.raises(ValueError, match='out.png'):
        ImageFolder(str(root), **options)


def test_messages_show_what_a_terminal_would_obey(tmp_path):
    seen = r'a\x1b[2J\u202eb'
    assert str(CheckpointError(f'{HOSTILE}: none')) == f'{seen}: none'
    for name in ('a', 'b'):
        (tmp_path / name).mkdir()
    (tmp_path / 'list').write_text(f'a/{HOSTILE}\nb/0.png')
    with pytest.raises(FileNotFoundError) as raised:
        read_subset(str(tmp_path / 'list'), str(tmp_path), ('a', 'b'))
    assert seen in str(raised.value)
    path = tmp_path / f'{HOSTILE}\udcff'  # not UTF-8
    path.touch()
    with pytest.raises(OSError) as raised:
        LoadImage(skip_unreadable=False).transform(dict(img_path=str(path)))
    assert rf'{seen}\udcff' in str(raised.value)
    assert HOSTILE not in str(raised.value)


def test_names_in_tables_and_pictures(tmp_path):
    names = '[bold]a', 'a|b', '<b>', 'a\nb', '$\\frac$'
    table = render_table(('name',), [(name,) for name in names])
    rows = [line.strip('| ') for line in table.splitlines()[2:]]
    assert rows == ['[bold]a', r'a\|b', '&lt;b>', r'a\nb', '$\\frac$']
    figure = Figure((1, 1))
    figure.text(0, 0, names[-1])
    write_figure(tmp_path / 'a.png', figure)


@pytest.mark.parametrize('script', ['dist_train.sh', 'dist_test.sh'])
def test_the_number_of_processes_is_a_number(tmp_path, script):
    number = f'HOME[$(touch {tmp_path}/it_ran)]'
    command = [ROOT / 'tools' / script, 'c.py', number, number]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2 and 'HOME' in run.stderr
    assert not (tmp_path / 'it_ran').exists()


def make(folder, *arguments, **environment):
    """Return what make would run in a complete environment."""
    dry = 'make', '-nf', ROOT / 'Makefile', '-o', '.venv/.complete'
    return subprocess.check_output(
        [*dry, *arguments],
        cwd=folder,
        env=dict(PATH='/bin:/usr/bin', **environment),
        text=True,
    )


def test_make_hands_on_the_name_of_a_folder(tmp_path):
    name = "it's $HOME $(shell touch it_ran)"
    for how in ([f'DATA={name}'], []):
        printed = make(tmp_path, 'demo', *how, DATA=name)
        assert shlex.split(printed)[-1] == f'--data={name}'
    assert not (tmp_path / 'it_ran').exists()


def test_make_leaves_out_marks_that_are_declared(pytestconfig, tmp_path):
    printed = make(tmp_path, 'test', 'OPS=0')
    (expression,) = re.findall(r"-m 'not (.+)'", printed)
    marks = expression.split(' and not ')
    assert len(marks) == 2
    declared = [line.split(':')[0] for line in pytestconfig.getini('markers')]
    assert {*marks} <= {*declared}


def test_the_sweep_hands_on_quoted_arguments(tmp_path):
    tool = load_tool('analysis_tools/lr_sweep')
    args = mock.Mock(config='c.py', gpus=1, train_args="--resume 'a b'")
    with mock.patch.object(tool.subprocess, 'run') as run:
        run.return_value = mock.Mock(returncode=0, stderr='')
        tool._train(args, tmp_path, [])
    assert 'a b' in run.call_args.args[0]


def test_names_in_shards_and_logs(tmp_path, caplog):
    with tarfile.open(tmp_path / 'a.tar', 'w') as tar:
        tar.addfile(tarfile.TarInfo(f'{HOSTILE}.png'))
    with pytest.raises(ValueError) as raised:
        ImageShards(str(tmp_path / 'a.tar'))
    assert HOSTILE not in str(raised.value)
    path = tmp_path / f'{HOSTILE}.png'
    Image.new('I;16', (8, 8)).save(path)
    with pytest.raises(ValueError) as raised:
        ImageFolder(str(tmp_path), with_label=False, pipeline=[LoadImage()])
    assert HOSTILE not in str(raised.value)
    runner = ConsoleRunner.__new__(ConsoleRunner)  # only to write a log
    runner._log_dir, runner._timestamp = str(tmp_path), 't'
    runner._experiment_name = 'names'
    logger = runner.build_logger()
    logger.addHandler(caplog.handler)
    logger.warning('%s\nin two lines', HOSTILE)
    assert caplog.messages == [r'a\x1b[2J\u202eb' + '\nin two lines']
