# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Command lines of training and testing, in one process and in two."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.fileio import load

from mmmoca import stack
from mmmoca.engine import launch
from mmmoca.engine.training import prepare_training

from ..distributed import free_port
from ..tools import TOOLS, run_tool

CONFIGS = TOOLS.parent / 'configs'
CONFIG = 'moca_vit-b16_200e.py'
SMALL = [
    'model.backbone.arch=deit-t',
    'model.codebook.num_words=64',
    'train_dataloader.batch_size=4',
    'train_dataloader.num_workers=0',
    'val_dataloader.num_workers=0',
    'test_dataloader.num_workers=0',
    'val_cfg.bank_dataloader.num_workers=0',
    'test_cfg.bank_dataloader.num_workers=0',
    'test_cfg.k=[2,4]',  # the bank has 8 images
    'param_scheduler=[]',
    'train_cfg.val_interval=1',
    'default_hooks.logger.interval=1',
]


def _error(capsys, function, *arguments):
    with pytest.raises(SystemExit) as stop:
        function(*arguments)
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def command(tool, monkeypatch):
    """Parse a command line of a tool; gives its parser, too."""

    def parse(name, *arguments):
        argv = [f'{name}.py', *map(str, arguments)]
        monkeypatch.setattr(sys, 'argv', argv)
        return tool(name).parse_args()

    return parse


def test_config_is_a_path_or_a_name(
    tool, command, tmp_path, monkeypatch, capsys
):
    load_config = tool('_arguments').load_config
    monkeypatch.chdir(tmp_path)
    by_name = load_config(*command('train', CONFIG))
    assert by_name.work_dir == os.path.join('work_dirs', 'moca_vit-b16_200e')
    for config in (f'configs/{CONFIG}', CONFIGS / CONFIG):
        same = load_config(*command('train', config))
        assert same._cfg_dict == by_name._cfg_dict

    (tmp_path / CONFIG).write_text("work_dir = 'mine'\n")
    nearby = load_config(*command('train', CONFIG))
    assert nearby._cfg_dict == dict(work_dir='mine', launcher='none')
    error = _error(capsys, command, 'train', 'moca_vit-b16_200.py')
    assert 'there is no config moca_vit-b16_200.py' in error
    assert CONFIG in error


def test_missing_checkpoints_are_said_first(command, tmp_path, capsys):
    there, missing = tmp_path / 'there.pth', tmp_path / 'missing.pth'
    there.touch()
    for name in (there, f'mmmoca-student://{there}', 's3://bucket/a.pth'):
        assert command('test', CONFIG, name)[1].checkpoint == str(name)
    for value in (['auto'], [str(there)]):
        _, args = command('train', CONFIG, '--resume', *value)
        assert [args.resume] == value
    assert command('train', CONFIG, '--resume')[1].resume == 'auto'
    for tail in (
        ['test', CONFIG, f'mmmoca-student://{missing}'],
        ['train', CONFIG, '--resume', missing],
    ):
        error = _error(capsys, command, *tail)
        assert f'there is no checkpoint {missing}' in error


def test_options_are_those_of_mmengine(command, capsys):
    options = ['a.b=1e-3', 'c=[(1,x),2]', 'd=None', '--amp']
    options += ['--cfg-options', 'e=f=g', 'p=/my data/1 2', 'q= 3', 'r=1, 2']
    _, args = command('train', CONFIG, '--cfg-options', *options)
    assert args.amp and dict(args.cfg_options) == {
        'a.b': 1e-3,
        'c': [(1, 'x'), 2],
        'd': None,
        'e': 'f=g',
        'p': '/my data/1 2',
        'q': 3,
        'r': [1, 2],
    }
    error = _error(capsys, command, 'train', CONFIG, '--cfg-options', 'a')
    assert '--cfg-options: a must be KEY=VALUE' in error


def test_arguments_of_training(tmp_path):
    (tmp_path / 'a.pth').touch()

    def apply(cfg=None, **arguments):
        cfg = Config(cfg or dict(optim_wrapper=dict(type='OptimWrapper')))
        assert prepare_training(cfg, **arguments) == {}
        return cfg

    assert apply(resume='auto').resume is True
    assert apply(resume='auto').load_from is None
    file = str(tmp_path / 'a.pth')
    assert apply(resume=file).load_from == file
    assert apply(validate=False).val_cfg is None
    ours = 'mmmoca.MixedPrecisionOptimWrapper'
    assert apply(amp=True).optim_wrapper.type == ours
    for kind in (ours, 'AmpOptimWrapper'):
        cfg = dict(optim_wrapper=dict(type=kind, dtype='bfloat16'))
        assert apply(cfg, amp=True).optim_wrapper == cfg['optim_wrapper']
    cfg = Config(
        dict(
            auto_scale_lr=dict(base_batch_size=64),
            optim_wrapper=dict(optimizer=dict(lr=1.0)),
            train_dataloader=dict(batch_size=32),
        )
    )
    written = prepare_training(cfg, auto_scale_lr=True)
    assert written == {'optim_wrapper.optimizer.lr': 0.5}


def test_what_a_run_starts_from(tmp_path, command, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('a.pth', 'b.pth'):
        Path(name).touch()

    def chosen(init=None, resume=None, load_from=None):
        cfg = Config(dict(work_dir=str(tmp_path / 'run'), resume=False))
        cfg.load_from = load_from
        prepare_training(cfg, init, resume)
        return cfg.load_from, cfg.resume

    start = 'mmmoca-start://a.pth'
    assert chosen(init='a.pth') == (start, False)
    # A run without checkpoints starts, one that has some goes on.
    assert chosen(init='a.pth', resume='auto') == (start, False)
    assert chosen(load_from=start, resume='auto') == (start, False)
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / 'interrupted.pth').touch()
    assert chosen(init='a.pth', resume='auto') == (None, True)
    assert chosen(load_from=start, resume='auto') == (None, True)
    assert chosen(load_from=start, resume='b.pth') == ('b.pth', True)
    for other in (dict(load_from='b.pth'), dict(resume='b.pth')):
        with pytest.raises(ValueError, match='a.pth or .*b.pth'):
            chosen(init='a.pth', **other)
    error = _error(capsys, command, 'train', CONFIG, '--init', tmp_path)
    assert f'there is no file {tmp_path}' in error


def test_wrong_arguments_of_testing_are_one_line(
    tool, command, capsys, tmp_path, monkeypatch
):
    checkpoint = tmp_path / 'a.pth'
    checkpoint.touch()
    for arguments, message in (
        ('--out-item metrics', '--out-item needs --out'),
        ('--out a.json', 'must end in .pkl, .pickle'),
        ('--out a.txt --out-item metrics', 'must end in .pkl'),
    ):
        words = ('test', CONFIG, checkpoint, *arguments.split())
        assert message in _error(capsys, command, *words)
    (tmp_path / 'untested.py').write_text('model = dict()\n')
    monkeypatch.chdir(tmp_path)
    command('test', 'untested.py', 'a.pth')
    assert 'untested.py has no test_cfg' in _error(capsys, tool('test').main)


def test_what_is_missing_is_one_line(
    tool, command, capsys, tmp_path, monkeypatch
):
    def missing():
        raise stack.MissingOpsError('detection needs a command')

    monkeypatch.chdir(tmp_path)
    command('train', CONFIG)
    error = _error(capsys, tool('train').main)
    assert 'train.py: error: there is no folder data/imagenet/' in error
    monkeypatch.setattr(launch, 'check_compiled_ops', missing)
    command('train', 'detection/cascade-mask-rcnn_vit-tiny_fpn_shapes.py')
    error = _error(capsys, tool('train').main)
    assert 'error: detection needs a command' in error


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Run a script of tools with stand-ins for what it starts."""
    for name in ('python', 'srun'):
        stand_in = tmp_path / name
        stand_in.write_text(
            '#!/bin/bash\n'
            'echo "OMP=${OMP_NUM_THREADS-}"; printf "%s\\n" "$0" "$@"\n'
        )
        stand_in.chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)

    def run(script, *arguments, **environment):
        output = subprocess.run(
            [TOOLS / script, *arguments],
            env={**os.environ, **environment},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.splitlines()
        program = Path(output[1]).name
        return output[0].removeprefix('OMP='), program, output[2:]

    return run


@pytest.mark.parametrize(
    ('script', 'positional'),
    [('dist_train.sh', ['c.py']), ('dist_test.sh', ['c.py', 'e.pth'])],
)
def test_dist_scripts(shell, script, positional):
    extra = ['--cfg-options', 'a="[(1, 2)]"']
    threads, program, arguments = shell(script, *positional, '1', *extra)
    assert program == 'python'
    assert int(threads) == len(os.sched_getaffinity(0))
    tool = str(TOOLS / script.removeprefix('dist_').replace('.sh', '.py'))
    assert arguments == [
        *('-m', 'torch.distributed.run', '--nnodes=1', '--node_rank=0'),
        *('--master_addr=127.0.0.1', '--master_port=29500'),
        *('--nproc_per_node=1', tool, *positional),
        *('--launcher', 'pytorch', *extra),
    ]
    cluster = dict(NNODES='2', NODE_RANK='1', MASTER_ADDR='host', PORT='3')
    threads, _, arguments = shell(script, *positional, '1000', **cluster)
    assert threads == '1'
    assert arguments[2:7] == [
        *('--nnodes=2', '--node_rank=1', '--master_addr=host'),
        *('--master_port=3', '--nproc_per_node=1000'),
    ]
    assert shell(script, *positional, '2', OMP_NUM_THREADS='7')[0] == '7'


@pytest.mark.parametrize(
    ('tool', 'arguments', 'passed_on'),
    [
        (
            'train',
            ['c.py', 'my dir', '--amp'],
            ['c.py', '--work-dir=my dir'],
        ),
        ('test', ['c.py', 'e.pth', '--amp'], ['c.py', 'e.pth']),
    ],
)
def test_slurm_scripts(shell, tool, arguments, passed_on):
    _, program, command = shell(
        f'slurm_{tool}.sh',
        *('part', 'job', *arguments),
        **dict(GPUS='16', GPUS_PER_NODE='4', CPUS_PER_TASK='6'),
        SRUN_ARGS='--mem=1 --quiet',
    )
    assert program == 'srun'
    assert command == [
        *('-p', 'part', '--job-name=job', '--gres=gpu:4', '--ntasks=16'),
        *('--ntasks-per-node=4', '--cpus-per-task=6', '--kill-on-bad-exit=1'),
        *('--mem=1', '--quiet', 'python', '-u', str(TOOLS / f'{tool}.py')),
        *(*passed_on, '--launcher', 'slurm', '--amp'),
    ]


@pytest.mark.parametrize('script', sorted(TOOLS.glob('*.sh')))
def test_scripts_are_executable_and_say_what_is_missing(script):
    assert os.access(script, os.X_OK)
    run = subprocess.run(
        [script, 'c.py'], stderr=subprocess.PIPE, text=True, check=False
    )
    assert run.returncode != 0
    assert f'Usage: {script}' in run.stderr


@pytest.mark.slow
def test_two_processes_and_one_agree(workspace, tmp_path, monkeypatch):
    monkeypatch.chdir(workspace)
    folder = str(Path(sys.executable).parent)
    monkeypatch.setenv('PATH', folder, prepend=os.pathsep)
    monkeypatch.setenv('PYTHONPATH', str(TOOLS.parent), prepend=os.pathsep)
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    monkeypatch.setenv('PORT', str(free_port()))
    options = ['--work-dir', tmp_path, '--cfg-options', *SMALL]

    def run(tool, *arguments):
        arguments = [CONFIG, *arguments, *options]
        if tool.endswith('.py'):
            return run_tool(f'tools/{tool}', *arguments)
        return subprocess.run(
            [TOOLS / tool, *arguments],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    options.append('train_cfg.max_epochs=1')
    log = run('dist_train.sh', '2', '--auto-scale-lr')
    (file,) = tmp_path.glob('*/*.log')
    for text in ("dist_cfg: {'backend': 'gloo'}", 'GPU number: 2', 'Config:'):
        assert text in file.read_text() and text not in log
    assert 'OneDL' not in log
    assert 'optim_wrapper.optimizer.lr=4.6875e-06' in log  # times 8 / 2048

    options[-1] = 'train_cfg.max_epochs=2'
    options.append('train_dataloader.batch_size=8')  # the same global batch
    log = run('train.py', '--resume', '--amp', '--no-validate')
    assert 'resumed epoch: 1, iter: 1' in log
    saved = (tmp_path / CONFIG).read_text()
    assert "type='mmmoca.MixedPrecisionOptimWrapper'" in saved
    assert 'Epoch(train) [2][1/1]' in log
    assert 'Epoch(val)' not in log
    assert re.search(f'^next .*embed.py {tmp_path}/epoch_2.pth', log, re.M)

    checkpoint = tmp_path / 'epoch_2.pth'
    metrics, predictions = tmp_path / 'm.json', tmp_path / 'p.pkl'
    log = run('test.py', checkpoint, '--out', metrics, '--out-item', 'metrics')
    assert re.search(r'\| k-NN top-1 \(%\) \| +k = 2', log)
    run('dist_test.sh', checkpoint, '2', '--out', predictions)
    samples = load(predictions)
    assert len(samples) == 4
    hits = [int(s['pred_label']) == int(s['gt_label']) for s in samples]
    assert json.loads(metrics.read_text())['knn/top1_k2'] == pytest.approx(
        100 * sum(hits) / 4
    )
