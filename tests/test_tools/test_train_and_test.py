# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Command lines of training and testing, in one process and in two."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from unittest import mock

import pytest
import torch
from mmengine.dist import barrier
from mmengine.fileio import load
from mmpretrain.registry import DATASETS, MODELS

from mmmoca import requirements
from mmmoca.engine import NonFiniteLossError, NonFiniteStateError, training
from mmmoca.engine.config import read_run
from mmmoca.engine.tta import augment_test

from ..helpers.distributed import run_processes
from ..helpers.images import CONFIGS, DEMO_CONFIG
from ..helpers.runs import SMALL
from ..helpers.tools import TOOLS, run_tool

CONFIG = 'moca_vit-b16_200e.py'
LOADERS = 'train_dataloader', 'val_dataloader', 'val_cfg.bank_dataloader'


def read(*arguments, **options):
    return read_run(*arguments, **dict(stages=['train', 'val']) | options)


def test_config_is_a_path_or_a_name(tool, tmp_path, monkeypatch):
    parse = tool('train').build_parser().parse_args
    monkeypatch.chdir(tmp_path)
    by_name = read_run(parse([CONFIG]).config)
    assert by_name.work_dir == os.path.join('work_dirs', 'moca_vit-b16_200e')
    for config in (f'./configs/{CONFIG}', CONFIGS / CONFIG):
        same = read_run(parse([str(config)]).config)
        assert same._cfg_dict == by_name._cfg_dict

    (tmp_path / CONFIG).write_text("work_dir = 'mine'\n")
    nearby = read_run(parse([CONFIG]).config)
    assert nearby._cfg_dict == dict(work_dir='mine', launcher='none')
    with pytest.raises(ValueError):
        read(CONFIG)  # this trains nothing


def test_options_of_several_flags_are_kept(tool):
    more = '--amp', '--cfg-options', 'e=f=g', 'p=/my data/1 2'
    line = CONFIG, '--cfg-options', 'a=1e-3', *more
    args = tool('train').build_parser().parse_args(line)
    assert args.amp and args.cfg_options == ['a=1e-3', *more[2:]]


def test_arguments_of_training(root):
    options = {f'{s}.dataset.data_root': str(root) for s in LOADERS}
    cfg = read(DEMO_CONFIG, options, stages=['train'])
    assert cfg.val_cfg is cfg.val_dataloader is None
    ours = 'mmmoca.MixedPrecisionOptimWrapper'
    wrapper = 'optim_wrapper.type'
    for given, used in (('OptimWrapper', ours), ('AmpOptimWrapper', None)):
        cfg = read(DEMO_CONFIG, options | {wrapper: given}, amp=True)
        assert cfg.optim_wrapper.type == (used or given)
    with pytest.raises(ValueError):
        precise = {'optim_wrapper.dtype': 'float32'}
        read(DEMO_CONFIG, options | precise, amp=True)
    scaled = read(DEMO_CONFIG, options, auto_scale_lr=True)
    assert scaled.auto_scale_lr.enable


def test_what_a_run_starts_from(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('a.pth', 'b.pth'):
        Path(name).touch()
    options = {f'{s}.dataset.data_root': str(root) for s in LOADERS}

    def chosen(init=None, resume=None, load_from=None):
        cfg = read(
            DEMO_CONFIG,
            options | dict(load_from=load_from),
            work_dir=str(tmp_path / 'run'),
            init=init,
            resume=resume,
        )
        return cfg.load_from, cfg.resume

    start = 'mmmoca-start://a.pth'
    assert chosen(init='a.pth') == (start, False)
    assert chosen(resume='auto') == (None, True)
    # A run without checkpoints starts, and one with checkpoints resumes.
    assert chosen(init='a.pth', resume='auto') == (start, False)
    assert chosen(load_from=start, resume='auto') == (start, False)
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / 'interrupted.pth').touch()
    assert chosen(init='a.pth', resume='auto') == (None, True)
    assert chosen(load_from=start, resume='auto') == (None, True)
    assert chosen(load_from=start, resume='b.pth') == ('b.pth', True)
    for other in (dict(load_from='b.pth'), dict(resume='b.pth')):
        with pytest.raises(ValueError, match='a.pth'):
            chosen(init='a.pth', **other)


def test_scores_of_flips_are_averaged(workspace, tmp_path):
    config = CONFIGS / 'demo' / 'finetune_vit-tiny_textures.py'
    data, file = f'data_root={workspace}/data/imagenet', tmp_path / 'a.pth'
    cfg = read_run(config, [data])
    model = MODELS.build(cfg.model).eval()
    torch.save(dict(state_dict=model.state_dict()), file)
    out = ['--out', tmp_path / 'out.pkl', '--work-dir', tmp_path]
    run_tool('tools/test.py', config, file, '--tta', *out,
             '--cfg-options', data)  # fmt: skip
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    for found, image in zip(load(tmp_path / 'out.pkl'), dataset):
        flips = [image['inputs'], image['inputs'].flip(-1)]
        with torch.no_grad():
            given = model.data_preprocessor(dict(inputs=torch.stack(flips)))
            scores = model(given['inputs']).softmax(-1).mean(0)
        torch.testing.assert_close(found['pred_score'], scores)
    parts = [cfg.test_dataloader.dataset] * 2
    cfg.test_dataloader.dataset = dict(type='ConcatDataset', datasets=parts)
    cfg.tta_model = dict(type='Own')
    augment_test(cfg)
    for part in cfg.test_dataloader.dataset.datasets:
        assert part.pipeline[-1].type == 'TestTimeAug'
    assert cfg.custom_hooks[-1].tta_cfg == dict(type='Own')
    bare = 'segmentation/segmenter_vit-tiny_mask_shapes.py'
    with pytest.raises(ValueError, match='tta_pipeline'):
        augment_test(read_run(CONFIGS / bare))


def test_what_can_be_drawn(tool):
    draw = tool('test').draw_predictions
    masks = 'segmentation/segmenter_vit-tiny_mask_shapes.py'
    cfg = read_run(CONFIGS / masks)
    own = 'interval', 7
    for kind, kept in (
        ('SegVisualizationHook', True),
        ('VisualizationHook', False),
    ):
        cfg.default_hooks.visualization = dict([('type', kind), own])
        draw(cfg, 'drawn')
        hook = cfg.default_hooks.visualization
        assert (hook.type, hook.draw) == ('SegVisualizationHook', True)
        assert (own in hook.items()) == kept
    assert cfg.visualizer.save_dir == 'drawn'
    features = 'segmentation/incontext_vit-b16_own-masks-512x512.py'
    for config in (features, CONFIG, 'moca/moca_vit-b16_own-images.py'):
        with pytest.raises(ValueError, match='--show-dir'):
            draw(read_run(CONFIGS / config), 'drawn')


@pytest.mark.parametrize('kind', [NonFiniteLossError, NonFiniteStateError])
def test_a_run_that_diverges(tmp_path, monkeypatch, kind):
    """A run that diverges ends with its own exit status."""
    end = mock.Mock(side_effect=kind('iteration 3'))
    monkeypatch.setattr('mmmoca.engine.config.read_run', mock.Mock())
    monkeypatch.setattr(training, 'run', end)
    line = CONFIG, '--work-dir', tmp_path
    printed = run_tool('tools/train.py', *line, code=os.EX_DATAERR)
    assert 'iteration 3' in printed.splitlines()[-1]


@pytest.mark.processes
def test_missing_operators_are_one_line(tmp_path, monkeypatch):
    def missing():
        raise requirements.MissingOpsError('detection needs a command')

    monkeypatch.chdir(tmp_path)
    place = 'mmmoca.engine.config.check_compiled_ops'
    monkeypatch.setattr(place, missing)
    config = 'detection/cascade-mask-rcnn_vit-tiny_fpn_shapes.py'
    printed = run_tool('tools/train.py', config, code=2)
    assert 'error: detection needs a command' in printed.splitlines()[-1]


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Return a function that runs a line in tools/ with stand-in programs.

    It returns the number of threads, the command, and the process id.
    """
    for name in ('python', 'srun'):
        stand_in = tmp_path / name
        stand_in.write_text(
            f'#!/bin/bash\nprintf "%s\\n" $$ "$OMP_NUM_THREADS" {name} "$@"\n'
        )
        stand_in.chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)

    def run(line):
        printed = subprocess.check_output(
            ['bash', '-c', line], cwd=TOOLS, text=True
        )
        number, threads, *words = printed.splitlines()
        return threads, words, number

    return run


SLURM = "GPUS=16 GPUS_PER_NODE=4 CPUS_PER_TASK=6 SRUN_ARGS='--mem=1 --quiet'"
SRUN = (
    'srun -p part --job-name=job --gres=gpu:4 --ntasks=16 '
    '--ntasks-per-node=4 --cpus-per-task=6 --kill-on-bad-exit=1 '
    '--mem=1 --quiet python -u'
)


@pytest.mark.parametrize(
    ('line', 'started'),
    [
        (
            './dist_train.sh c.py 1 --cfg-options "a=[(1, 2)]"',
            f'python {TOOLS}/_launch.py --nnodes=1 --node_rank=0 '
            '--master_addr=127.0.0.1 --master_port=29500 --nproc_per_node=1 '
            f'{TOOLS}/train.py c.py --launcher pytorch '
            '--cfg-options "a=[(1, 2)]"',
        ),
        (
            'NNODES=2 NODE_RANK=1 MASTER_ADDR=host PORT=3 '
            './dist_test.sh c.py e.pth 1000 --out a.pkl',
            f'python {TOOLS}/_launch.py --nnodes=2 --node_rank=1 '
            '--master_addr=host --master_port=3 --nproc_per_node=1000 '
            f'{TOOLS}/test.py c.py e.pth --launcher pytorch --out a.pkl',
        ),
        (
            f'{SLURM} ./slurm_train.sh part job c.py "my dir" --amp',
            f'{SRUN} {TOOLS}/train.py c.py "--work-dir=my dir" '
            '--launcher slurm --amp',
        ),
        (
            f'{SLURM} ./slurm_test.sh part job c.py e.pth --out a.pkl',
            f'{SRUN} {TOOLS}/test.py c.py e.pth --launcher slurm --out a.pkl',
        ),
    ],
)
def test_what_scripts_start(shell, line, started):
    assert shell(line)[1] == shlex.split(started)


@pytest.mark.parametrize('script', ['dist_train.sh c.py', 'dist_test.sh c e'])
def test_processes_share_the_cores(shell, script):
    assert int(shell(f'./{script} 1')[0]) == len(os.sched_getaffinity(0))
    assert shell(f'./{script} 1000')[0] == '1'
    assert shell(f'OMP_NUM_THREADS=7 ./{script} 2')[0] == '7'
    # A signal to the script reaches the run.
    own, started = shell(f'printf "%s " $$; exec ./{script} 1')[2].split()
    assert own == started


@pytest.mark.parametrize('script', sorted(TOOLS.glob('*.sh')))
def test_scripts_are_executable_and_say_what_is_missing(script):
    assert os.access(script, os.X_OK)
    run = subprocess.run(
        [script, 'c.py'], stderr=subprocess.PIPE, text=True, check=False
    )
    assert run.returncode != 0
    assert f'Usage: {script}' in run.stderr


def run_in_one_of_two(folder, *lines):
    """Return what each program prints, and the config that it leaves."""
    os.environ['CUDA_VISIBLE_DEVICES'] = ''
    os.chdir(folder)
    found = []
    for line in lines:
        printed = run_tool(*line)
        barrier()  # the first process writes files
        found.append((printed, Path(CONFIG).read_text()))
    return found


def test_metrics_that_are_tensors(workspace, tmp_path, monkeypatch):
    """mmpretrain's confusion matrix is an example."""
    monkeypatch.chdir(workspace)
    (tmp_path / 'a.pth').touch()
    runner = mock.Mock(test=lambda: dict(top1=1.0, matrix=torch.eye(2)))
    monkeypatch.setattr(
        'mmmoca.engine.training.build_runner', lambda cfg: runner
    )
    out = '--out', tmp_path / 'm.json', '--out-item', 'metrics'
    run_tool('tools/test.py', CONFIGS / CONFIG, tmp_path / 'a.pth', *out)
    assert load(tmp_path / 'm.json') == dict(top1=1.0, matrix=[[1, 0], [0, 1]])


@pytest.mark.slow
@pytest.mark.processes
def test_two_processes_and_one_agree(workspace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('data').symlink_to(workspace / 'data')
    options = ['--work-dir', '.', '--cfg-options', *SMALL]
    options.append('train_cfg.max_epochs=1')
    # The run leaves a config of this name here.
    test = CONFIGS / CONFIG, 'epoch_1.pth'

    switches = '--auto-scale-lr', '--amp', '--no-validate'
    lines = [
        (*line, '--launcher', 'pytorch', *options)
        for line in (
            ('tools/train.py', CONFIG, *switches),
            ('tools/test.py', *test, '--out', 'p.pkl'),
        )
    ]
    found = run_processes(run_in_one_of_two, 2, tmp_path, *lines)
    (log, saved), (_, kept) = found[0]
    assert 'GPU number: 2' in min(tmp_path.glob('*/*.log')).read_text()
    assert 'optim_wrapper.optimizer.lr=4.6875e-06' in log  # times 8 / 2048
    assert 'Epoch(train) [1][1/1]' in log and 'Epoch(val)' not in log
    assert "type='mmmoca.MixedPrecisionOptimWrapper'" in saved
    assert kept == saved  # the training's config

    out = '--out', 'm.json', '--out-item', 'metrics'
    log = run_tool('tools/test.py', *test, *out, *options)
    assert re.search(r'\| k-NN top-1 \(%\) \| +k = 2', log)
    samples, found = load('p.pkl'), load('m.json')
    hits = [int(s['pred_label']) == int(s['gt_label']) for s in samples]
    assert len(hits) == 4
    assert found['knn/top1_k2'] == 100 * sum(hits) / 4
    assert Path(CONFIG).read_text() == saved
