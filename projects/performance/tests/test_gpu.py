# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The command for GPUs, rehearsed without one."""

import gzip
import json
import subprocess
import sys
import time
from argparse import Namespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import gpu
import gpu_device
import gpu_parts
import gpu_runs
import gpu_setting
from device_peaks import peak_speed
from gpu_attempts import OUT_OF_MEMORY, attempt
from gpu_figures import Failure, Figures, Row
from gpu_loaders import Watch
from gpu_objective import OBJECTIVES
from gpu_report import GOALS, write_report
from gpu_steps import search_largest
from gpu_tests import read_tests
from host_waits import count_waits, idle_share, read_trace
from mmmoca.models import MOCA
from objective_forms import FORMS, build
from sections import count_flops
from tests.images import DEMO_CONFIG
from tests.runs import NO_VALIDATION, demo_runner
from training_step import TrainingStep

TINY = ('deit-tiny', 2, 'bf16')


@pytest.fixture
def figures(tmp_path):
    return Figures(tmp_path / 'figures.jsonl')


@pytest.mark.slow
def test_rehearsal(tmp_path, figures, monkeypatch):
    """Every part, on a CPU; others compile, and train in processes."""
    tiny = gpu_setting.TINY._replace(compiled=False)
    monkeypatch.setattr(gpu_setting, 'TINY', tiny)

    def launch(function, processes, work_dir, options, launcher):
        assert (processes, launcher) == (1, 'pytorch')
        return [function(work_dir, options, 'none')]

    monkeypatch.setattr(gpu_runs, 'launch', launch)
    setting = gpu_setting.Setting('cpu', True, tmp_path, time.time() + 600)
    for name in gpu_parts.PARTS:
        gpu_parts.run_part(name, setting, figures)
    parts = figures.parts()
    assert list(parts) == list(gpu_parts.PARTS)
    failed = [r for lines in parts.values() for r in lines if 'error' in r]
    assert not failed
    rows = {
        (r['table'], *list(r['values'].values())[:2])
        for lines in parts.values()
        for r in lines
        if 'values' in r
    }
    for dtype in ('bf16', 'fp16', 'fp32'):
        assert ('demo, batch 4', dtype, 'eager') in rows
    (row,) = (r for r in parts['tests'])
    assert row['values']['passed'] == 3
    first, second = (r['values'] for r in parts['distributed'])
    assert second['largest difference'] == 0 < first['last loss']
    report = write_report(figures, 'gpu.py --tiny')
    assert 'a rehearsal' in report
    # Every goal found its figures.
    assert 'not measured' not in report
    assert all(f'| {goal.text} | ' in report for goal in GOALS)
    trace = read_trace(tmp_path / 'trace.json.gz')
    assert any(event['cat'] == 'cpu_op' for event in trace)


@pytest.mark.slow
@pytest.mark.processes
def test_parts_have_processes(tmp_path, capsys):
    arguments = ['--device', 'cpu', '--tiny', '--out', str(tmp_path)]
    assert gpu.main([*arguments, '--parts', 'pipeline']) == 0
    figures = Figures(tmp_path / 'figures.jsonl')
    *rows, end = figures.of('pipeline')
    assert len(rows) == 3
    assert all(row['values']['img/s'] > 0 for row in rows)
    assert end == dict(seconds=figures.seconds('pipeline'))
    assert (tmp_path / 'report.md').read_text() in capsys.readouterr().out
    assert '=== pipeline' in (tmp_path / 'log.txt').read_text()


def test_no_time(tmp_path, capsys):
    arguments = ['--device', 'cpu', '--tiny', '--out', str(tmp_path)]
    arguments += ['--minutes', '0', '--parts', 'step', 'demo']
    assert gpu.main(arguments) == 0
    printed = capsys.readouterr().out
    assert 'step: left out, takes 20 s' in printed
    assert 'Left out for want of time: --parts step demo' in printed


def test_arguments(capsys):
    gpu.main(['--list'])
    listed = capsys.readouterr().out.split('\n')[:-1]
    assert [line.split()[0] for line in listed] == list(gpu_parts.PARTS)
    for wrong in (['--device', 'cpu'], ['--parts', 'nothing']):
        with pytest.raises(SystemExit):
            gpu.parse_args(wrong)
    assert 'add --tiny' in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_no_gpu(tmp_path):
    with pytest.raises(SystemExit, match='sees no GPU here; --device cpu'):
        gpu.main(['--out', str(tmp_path)])


@pytest.mark.parametrize(
    ('code', 'error'),
    [
        ('import time; time.sleep(60)', 'stopped after 1 s'),
        ('raise SystemExit(3)', 'ended with status 3'),
        ('import os; os.abort()', 'ended with status -6'),
    ],
)
def test_processes_that_do_not_end_well(figures, code, error):
    process = subprocess.Popen(
        [sys.executable, '-c', code],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    setting = dict(until=time.time() + (1 if 'sleep' in code else 60))
    assert not gpu.run('step', process, setting, figures)
    (failure,) = figures.of('step')
    assert failure['error'] == error
    assert process.returncode is not None


def test_a_part_that_raises(figures, monkeypatch):
    def machine(setting):
        yield Row('Machine', dict(device='one'))
        raise OSError('no driver\nat all')

    monkeypatch.setattr(gpu_device, 'machine', machine)
    gpu_parts.run_part('machine', None, figures)
    row, failure = figures.of('machine')
    assert row['values'] == dict(device='one')
    assert failure['error'] == 'OSError: no driver'
    assert 'OSError: no driver' in write_report(figures, '')


def test_attempts():
    def run_out():
        raise torch.OutOfMemoryError('CUDA out of memory')

    assert attempt('', run_out) == OUT_OF_MEMORY
    assert attempt('', lambda: 3) == 3
    failure = attempt('a form', lambda: [][0])
    assert failure == Failure('a form', 'IndexError: list index out of range')


def test_figures_survive(figures):
    figures.add('step', Row('a', dict(ms=1.5)))
    figures.end('step', 2.04)
    figures.add('demo', 'a note')
    with figures.path.open('a') as file:
        file.write('{"part": "demo", "no')
    assert figures.of('step')[0]['values'] == dict(ms=1.5)
    assert figures.seconds('step') == 2.0
    assert figures.of('demo') == [dict(note='a note')]
    assert figures.seconds('demo') is None
    figures.start('step')
    assert figures.of('step') == [] and figures.seconds('step') is None
    assert figures.of('demo') == [dict(note='a note')]


def test_largest_batch():
    for limit in range(200):
        tried = []

        def fits(size, limit=limit, tried=tried):
            tried.append(size)
            return size <= limit

        found = search_largest(fits, 32, 128, 8)
        assert found == min(limit, 128) // 8 * 8, (limit, tried)
        assert len(tried) == len(set(tried)) <= 6
        assert all(0 < size <= 128 for size in tried)


def events(*rows):
    names = 'cat', 'name', 'tid', 'ts', 'dur'
    return [dict(zip(names, row), ph='X') for row in rows]


def test_waits_and_idle_time(tmp_path):
    trace = events(
        ('cuda_runtime', 'cudaLaunchKernel', 1, 0, 2),
        ('cuda_runtime', 'cudaMemcpyAsync', 1, 3, 1),
        ('cuda_runtime', 'cudaStreamSynchronize', 1, 4, 6),
        ('cuda_runtime', 'cudaStreamWaitEvent', 1, 11, 1),
        ('cuda_driver', 'cuLaunchKernelEx', 2, 12, 2),
        ('cuda_runtime', 'cudaEventSynchronize', 2, 15, 1),
        ('cuda_runtime', 'cudaEventSynchronize', 3, 16, 1),  # pins memory
        ('cpu_op', 'aten::cudaMemcpy', 1, 16, 1),
        ('cuda_runtime', 'cudaLaunchKernel', 1, 20, 2),
        ('cuda_runtime', 'cudaDeviceSynchronize', 1, 23, 9),  # the profiler
        ('kernel', 'gemm', 7, 5, 10),
        ('kernel', 'gemm', 8, 7, 4),
        ('gpu_memset', 'Memset', 7, 15, 5),
        ('gpu_user_annotation', 'Optimizer.step', 7, 5, 20),
        ('kernel', 'adam', 7, 25, 5),
    )
    path = tmp_path / 'trace.json.gz'
    with gzip.open(path, 'wt') as file:
        others = [dict(ph='M', name='process_name')]
        json.dump(dict(traceEvents=[*others, *trace]), file)
    read = read_trace(path)
    assert read == trace
    waits = {'cudaStreamSynchronize': 1, 'cudaEventSynchronize': 1}
    assert count_waits(read) == waits
    assert idle_share(read) == pytest.approx(5 / 25)
    assert idle_share(trace[:9]) is None
    assert not count_waits(trace[10:])


def test_goals(figures):
    def figure(part, column, value, **values):
        figures.add(part, Row('a', values | {column: value}))

    compiled = dict(precision='bf16', form='compiled')
    theirs = dict(precision='bf16', form='authors, fused attention')
    figure('step', 'MFU %', 41.0, **compiled)
    figure('step', 'img/s', 1640.0, **compiled)
    figure('step', 'of it the step', 21.0, **compiled)
    figure('reference', 'img/s', 410.0, **theirs)
    figure('reference', 'step GiB', 30.0, **theirs)
    figure('runner', 'host waits', 2)
    figure('pipeline', 'img/s', 'out of memory')
    lines = write_report(figures, '').split('\n')[2:9]
    cells = [line.split(' | ')[1:] for line in lines[2:]]
    assert cells == [
        ['41.0', 'yes |'],
        ['4.00', 'yes |'],
        ['0.70', 'no |'],
        ['2.00', 'no |'],
        ['not measured', '- |'],
    ]


@pytest.mark.parametrize(
    ('name', 'speeds'),
    [
        ('NVIDIA H100 80GB HBM3', (989, 67, 494)),
        ('NVIDIA H100 PCIe', (756, 51, 378)),
        ('NVIDIA H200', (989, 67, 494)),
        ('NVIDIA A100-SXM4-80GB', (312, 19.5, 156)),
    ],
)
def test_peaks(name, speeds):
    half, full, tf32 = (speed * 1e12 for speed in speeds)
    assert peak_speed(name, torch.bfloat16) == half
    assert peak_speed(name, torch.float16, tf32=True) == half
    assert peak_speed(name, torch.float32) == full
    assert peak_speed(name, torch.float32, tf32=True) == tf32
    assert peak_speed('NVIDIA GeForce RTX 2080', torch.float32) is None


def test_report_of_pytest(tmp_path):
    report = tmp_path / 'tests.xml'
    report.write_text(
        '<testsuites><testsuite>'
        '<testcase classname="a" name="x" time="1.5"/>'
        '<testcase classname="a" name="y" time="1">'
        '<skipped message="needs a GPU"/></testcase>'
        '<testcase classname="b" name="z" time="2">'
        '<failure message="assert 1 == 2&#10; + 3">long</failure></testcase>'
        '</testsuite></testsuites>'
    )
    failure, first, second = read_tests(report)
    assert failure == Failure('b.z', 'assert 1 == 2')
    counts = 'passed', 'skipped', 'failure', 'error', 's'
    assert [first.values[name] for name in counts] == [1, 1, 0, 0, 2.5]
    assert [second.values[name] for name in counts] == [0, 0, 1, 0, 2.0]


def test_step_fits_together_on_a_gpu(monkeypatch):
    """Devices of a whole forward pass, by tensors that only look like it.

    The reference step is left out: PyTorch's fake tensors corrupt the memory
    in it, and the process crashes at some later time.
    """

    def move(model, device):
        # PyTorch cannot move fake parameters: they are built on the device.
        model.data_preprocessor.to(device)
        return model

    monkeypatch.setattr(MOCA, 'to', move)
    # It reads what it has drawn.
    monkeypatch.setattr(MOCA, 'init_weights', lambda model: None)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, torch.device('cuda'):
        step = TrainingStep(*TINY, 'cuda')
        losses = step.forward()
        assert losses['loss_loc'].device.type == 'cuda'
        step.move_teacher()


@pytest.mark.parametrize('form', OBJECTIVES)
def test_objectives(form, monkeypatch):
    """All forms of the objective run, and on a GPU's tensors, too."""
    monkeypatch.setitem(FORMS, form, OBJECTIVES[form])
    build(form, 1, 32, 'cpu')()
    # Autocast of fake tensors works without a GPU.
    name = 'torch.cuda.amp.common.amp_definitely_not_available'
    monkeypatch.setattr(name, lambda: False)
    # The backward pass does not, and its failure can crash the process later.
    monkeypatch.setattr(torch.Tensor, 'backward', lambda loss: None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        build(form, 1, 32, 'cuda')()


def test_operations_of_a_step():
    """Each further image adds the same: 6 images, by 4 and 8."""
    step = TrainingStep(None, 4, 'fp32', 'cpu', config=DEMO_CONFIG)
    few = count_flops(step)
    step.take_batch(8)
    many = count_flops(step)
    step.take_batch(6)
    assert count_flops(step) == (few + many) // 2
    assert step.batch_size == 6 and len(step.batch['inputs'][0]) == 6


@pytest.mark.parametrize('compiled', [False, True])
def test_steps_are_set_up_as_runs_are(root, monkeypatch, compiled):
    """The benchmark measures what the Runner does."""
    calls = []

    def compiler(function, **options):
        calls.append((function.__name__, options))
        return function

    monkeypatch.setattr(torch, 'compile', compiler)
    monkeypatch.setattr(torch.backends.cudnn, 'benchmark', False)
    options = {'compile': dict(dynamic=False) if compiled else False}
    ours = {'runner_type': 'mmmoca.ConsoleRunner'}
    half = {'optim_wrapper.dtype': 'bfloat16'}
    runner = demo_runner(
        root, f'same_{compiled}', **options, **half, **ours, **NO_VALIDATION
    )
    searches = torch.backends.cudnn.benchmark
    theirs = runner.build_optim_wrapper(runner.cfg.optim_wrapper)
    runner.optim_wrapper = theirs
    runner._maybe_compile('train_step')
    of_runner = calls.copy()
    calls.clear()
    torch.backends.cudnn.benchmark = False
    step = TrainingStep(
        None, 4, 'bf16', 'cpu', None, options, config=DEMO_CONFIG
    )
    assert calls == of_runner and len(calls) == compiled
    assert torch.backends.cudnn.benchmark == searches
    ours = step.wrapper
    for wrapper in (ours, theirs):
        assert wrapper.optimizer.defaults['fused'] is True
    assert describe(ours) == describe(theirs)


def describe(wrapper):
    """All that is set in an optimiser wrapper, the parameters left out."""
    groups = [
        {k: v for k, v in group.items() if k != 'params'}
        | {'sizes': [p.shape for p in group['params']]}
        for group in wrapper.optimizer.param_groups
    ]
    return Namespace(
        kind=type(wrapper),
        optimizer=type(wrapper.optimizer),
        dtype=wrapper.cast_dtype,
        clip=wrapper.clip_grad_kwargs,
        scaler=wrapper.loss_scaler.is_enabled(),
        groups=groups,
    )


def test_watched_steps(root, tmp_path):
    """Which steps of a run are timed, profiled and listened to."""
    watch = Watch(tmp_path / 'trace.json.gz', False, (2, 3, 1))
    runner = demo_runner(
        root,
        'watched',
        **NO_VALIDATION,
        **{
            'train_cfg.max_iters': watch.last + 2,
            'default_hooks.checkpoint': None,
        },
    )
    runner.register_hook(watch)
    runner.train()
    assert (watch.start, watch.end, watch.last) == (2, 5, 7)
    times = runner.message_hub.get_scalar('train/time').data[0]
    assert watch.seconds == pytest.approx(times[2:5].mean(), rel=0.2)
    steps = [
        event
        for event in read_trace(watch.trace)
        if event['name'].startswith('Optimizer.step')
    ]
    assert len(steps) == 1
    assert not watch.waits
