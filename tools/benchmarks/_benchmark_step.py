# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of benchmark_step.py: tables of steps and their parts."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys

import torch
from mmengine.device import get_device
from rich.console import Console
from rich.table import Table

from _benchmark_objective import in_process
from _reference_step import ATTENTIONS, ReferenceStep
from _step import TrainingStep, alternate
from _step_pairs import pairs
from mmmoca.models.objectives import token_assignment_loss

# Dense bf16 (and fp16) operations a second, from the vendor's data sheets.
PEAKS = {'A100': 312e12, 'H100': 989e12, 'H200': 989e12}

# Decoder depth, rounds -> minutes an epoch and GB of full and of partial
# decoding: the paper's Table 1, ViT-B/16, batch 2048 on 8 A100.
PAPER = {
    (2, 1): ((9.00, 30.4), (8.15, 23.0)),
    (4, 1): ((10.25, 37.7), (8.55, 26.2)),
    (8, 1): ((12.41, 52.4), (9.30, 32.6)),
    (2, 2): (None, (10.35, 39.5)),
}
READY = 'ready'
MASKING = {
    'full 1': dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.0,)),
    'partial 1': dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.45,)),
    'partial 2': None,  # the config's 55 % and 75 %
}


def build(args: argparse.Namespace, **options) -> TrainingStep:
    """The step that the command line asks for."""
    return TrainingStep(
        args.arch, args.batch_size, args.dtype, args.device, **options
    )


def section_table(
    args: argparse.Namespace, step: TrainingStep
) -> tuple[Table, str]:
    """Measure a step and its sections; the table and a line below it."""
    floor = step.peak_mebibytes()
    step.run()
    seconds = step.time(args.repeats)
    memory = step.peak_mebibytes()
    flops = step.flops()
    sections = step.sections(args.repeats)
    whole = sections.pop('step')
    model, codebook = step.model, step.model.codebook
    if not args.compile:
        sections['objective, of it targets'] = targets_seconds(args, step)
    rate, speed = args.batch_size / seconds, flops / seconds
    peak = peak_speed(args, step)
    above = memory if args.device == 'cuda' else memory - floor
    kind = 'allocated' if args.device == 'cuda' else 'above the floor'
    summary = (
        f'Step without stops {seconds * 1e3:.1f} ms, {rate:.1f} img/s, '
        f'{above:.0f} MiB {kind}, {flops / 1e9:.1f} GFLOP, '
        f'{speed / 1e12:.2f} TFLOP/s, MFU {speed / peak:.1%} of '
        f'{peak / 1e12:.2f} TFLOP/s'
    )
    table = Table(
        title=f'{title(args)}, {len(model.masking.counts)} rounds, '
        f'K={len(codebook.words)}',
        min_width=72,
    )
    for column in ('section', 'ms', '%'):
        table.add_column(column, justify='right')
    parts = [v for k, v in sections.items() if ', of it' not in k]
    sections['other'] = whole - sum(parts)
    sections['step, stopping at borders'] = whole
    for name, value in sections.items():
        table.add_row(name, f'{value * 1e3:.1f}', f'{value / whole:.1%}')
    return table, summary


@torch.no_grad()
def targets_seconds(args: argparse.Namespace, step: TrainingStep) -> float:
    """Seconds that the objective takes for the targets alone."""
    model, clock = step.model, step.clock
    shape = (
        2 * args.batch_size,
        model.masking.num_patches,
        model.backbone.embed_dims,
    )
    tokens = torch.randn(shape, device=step.device)
    codebook = model.codebook
    times = alternate(
        {
            'targets': lambda: token_assignment_loss(
                [],
                [],
                None,
                model.head.kappa,
                codebook.assign(tokens),
            )
        },
        clock,
        args.repeats,
    )
    return times['targets']


def peak_speed(args: argparse.Namespace, step: TrainingStep) -> float:
    """Operations a second: the data sheet's, or of a large product here."""
    if args.device == 'cuda' and args.dtype != 'fp32':
        for known, peak in PEAKS.items():
            if known in torch.cuda.get_device_name():
                return peak
    side = 2048 if args.device == 'cpu' else 8192
    a, b = torch.randn(2, side, side, device=step.device, dtype=step.dtype)
    seconds = alternate({'': lambda: a @ b}, step.clock, args.repeats)
    return 2 * side**3 / seconds['']


def pair_table(args: argparse.Namespace, step: TrainingStep) -> Table:
    """Measure every part with and without its optimisation."""
    table = Table(title=f'With and without, {title(args)}')
    for column in ('part', 'form', 'ms', 'against the first'):
        table.add_column(column, justify='right')
    for part, forms in pairs(step):
        seconds = alternate(forms, step.clock, args.repeats)
        first = next(iter(seconds.values()))
        for form, value in seconds.items():
            table.add_row(
                part, form, f'{value * 1e3:.1f}', f'{value / first:.2f}x'
            )
        table.add_section()
    return table


def compile_table(args: argparse.Namespace, step: TrainingStep) -> Table:
    """Measure whole steps, eager and compiled, in turns."""
    eager = build(args)
    forms = {'compiled': step.run, 'eager': eager.run}
    seconds = alternate(forms, step.clock, args.repeats)
    table = Table(title=f'Whole step, {title(args)}')
    for column in ('form', 'ms', 'against the first'):
        table.add_column(column, justify='right')
    for form, value in seconds.items():
        ratio = value / seconds['compiled']
        table.add_row(form, f'{value * 1e3:.1f}', f'{ratio:.2f}x')
    return table


def build_form(args: argparse.Namespace, form: str) -> TrainingStep:
    """Our step, or the reference with one kind of attention."""
    if form == 'ours':
        return build(args, compiled=args.compile)
    options = (args.arch, args.batch_size, args.dtype, args.device)
    return ReferenceStep(*options, attention=form)


def serve_form(args: argparse.Namespace) -> None:
    """Time a step for each line read; then print the memory that it takes.

    That is the MiB of a step, and of the process above the built model.
    """
    step = build_form(args, args.form)
    floor = 0 if args.device == 'cuda' else step.peak_mebibytes()
    step.run()
    print(READY, flush=True)
    for _ in sys.stdin:
        print(step.time(1), flush=True)
    process = step.peak_mebibytes() - floor
    print(json.dumps([step.own_mebibytes(), process]))


def reference_table(args: argparse.Namespace) -> Table:
    """Measure whole steps, ours and the reference's."""
    forms = {
        'ours': 'ours',
        'fused': "reference, PyTorch's fused attention (timm >= 0.9)",
        'products': 'reference, attention by products (older timm)',
    }
    assert set(forms) == {'ours', *ATTENTIONS}
    seconds, memory = time_processes(list(forms), args.repeats)
    table = Table(
        title=f'Whole step, {title(args)}',
        caption='Ratios: ours against each, the time in the same turn. Step: '
        'what it takes besides weights and optimiser state. Process: above '
        'the built model. Medians.',
    )
    for column in ('', 's', 'time', 'step MiB', '', 'process MiB', ''):
        table.add_column(column, justify='right' if column else 'left')
    for form, name in forms.items():
        turns = zip(seconds['ours'], seconds[form])
        ratio = statistics.median(ours / it for ours, it in turns)
        row = [f'{statistics.median(seconds[form]):.2f}', f'{ratio:.2f}x']
        for ours, it in zip(memory['ours'], memory[form]):
            row += [f'{it:.0f}', f'{ours / it:.2f}x']
        table.add_row(name, *row)
    return table


def time_processes(forms: list[str], turns: int) -> tuple[dict, dict]:
    """Time steps of several forms in turns, each in a process of its own.

    Args:
        forms (list[str]): Values of ``--form``.
        turns (int): Steps of each.

    Returns:
        tuple[dict, dict]: Seconds of every step, and MiB, by form.
    """
    seconds = {form: [] for form in forms}
    with contextlib.ExitStack() as stack:
        processes = {}
        for form in forms:
            process = subprocess.Popen(
                [sys.executable, *sys.argv, '--form', form],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            processes[form] = stack.enter_context(process)
            while (line := process.stdout.readline().strip()) != READY:
                if not line and process.poll() is not None:
                    raise RuntimeError(f'the process of {form!r} failed')
        for _ in range(turns):
            for form, process in processes.items():
                process.stdin.write('\n')
                process.stdin.flush()
                seconds[form].append(float(process.stdout.readline()))
        memory = {
            form: json.loads(process.communicate()[0].splitlines()[-1])
            for form, process in processes.items()
        }
    return seconds, memory


def measure_decoding(args: argparse.Namespace) -> None:
    """Print seconds and extra MiB of one cell of Table 1."""
    depth, masking = args.decoding.split(' ', 1)
    step = build(
        args,
        compiled=args.compile,
        masking=MASKING[masking],
        decoder_depth=int(depth),
    )
    floor = 0 if args.device == 'cuda' else step.peak_mebibytes()
    step.run()
    seconds = step.time(args.repeats)
    print(json.dumps([seconds, step.peak_mebibytes() - floor]))


def decoding_table(args: argparse.Namespace) -> Table:
    """Measure the paper's Table 1."""
    cells = [f'{d} {m} 1' for d in (2, 4, 8) for m in ('full', 'partial')]
    results = {cell: [] for cell in (*cells, '2 partial 2')}
    for _ in range(args.rounds):
        for cell, rows in results.items():
            rows.append(in_process('--decoding', cell))
    measured = {
        cell: [statistics.median(column) for column in zip(*rows)]
        for cell, rows in results.items()
    }
    table = Table(
        title=f"The paper's Table 1, {title(args)}",
        caption="The paper's ratios: ViT-B/16, batch 2048 on 8 A100.",
    )
    for column in (
        'decoder depth',
        'change',
        's a step',
        'time',
        "paper's",
        'MiB',
        'memory',
        "paper's",
    ):
        table.add_column(column, justify='right')
    changes = [
        ('full -> partial', f'{d} full 1', f'{d} partial 1', *PAPER[d, 1])
        for d in (2, 4, 8)
    ]
    two_masks = 'partial: 1 -> 2 masks', '2 partial 1', '2 partial 2'
    changes.append((*two_masks, PAPER[2, 1][1], PAPER[2, 2][1]))
    for name, before, after, paper_before, paper_after in changes:
        row = [before[0], name]
        for index, form in enumerate(('{:.2f}', '{:.0f}')):
            old, new = measured[before][index], measured[after][index]
            row += [
                f'{form.format(old)} -> {form.format(new)}',
                f'{new / old:.2f}x',
                f'{paper_after[index] / paper_before[index]:.2f}x',
            ]
        table.add_row(*row)
    return table


def title(args: argparse.Namespace) -> str:
    """What was measured."""
    where = f'CPU with {torch.get_num_threads()} threads'
    if args.device == 'cuda':
        where = torch.cuda.get_device_name()
    how = 'compiled' if args.compile else 'eager'
    return (
        f'ViT-{args.arch}, batch {args.batch_size}, {args.dtype}, {how}, '
        f'{where}'
    )


def run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Measure and print what the arguments ask for.

    Args:
        parser (argparse.ArgumentParser): To report errors by.
        args (argparse.Namespace): The arguments.
    """
    found = get_device()
    args.device = args.device or ('cuda' if found == 'cuda' else 'cpu')
    if args.device != found:
        parser.error(
            f'the stack trains on {found!r} here; for --device cpu hide the '
            "GPU with CUDA_VISIBLE_DEVICES='', for cuda install a CUDA "
            'build of PyTorch'
        )
    if args.device == 'cpu' and args.dtype == 'fp16':
        parser.error('fp16 has no fast CPU kernels; use --dtype bf16')
    args.batch_size = args.batch_size or (16 if args.device == 'cpu' else 256)
    if args.decoding:
        measure_decoding(args)
        return
    if args.form:
        serve_form(args)
        return
    console = Console(width=max(Console().width, 100))
    if args.reference or args.table1:
        table = reference_table if args.reference else decoding_table
        console.print(table(args))
        return
    step = build(args, compiled=args.compile)
    console.print(*section_table(args, step))
    if args.compile:
        console.print(compile_table(args, step))
    console.print(pair_table(args, step))
    if hasattr(os, 'getloadavg'):
        load = ', '.join(f'{value:.1f}' for value in os.getloadavg())
        console.print(f'Load average of the machine: {load}')
