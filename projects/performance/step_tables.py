# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Sections of a step, and its parts with and without each optimisation."""

import os
from argparse import Namespace
from collections.abc import Iterator

import torch

from measure import median_seconds, name_of, print_table
from mmmoca.models import bags_of_codes
from step_pairs import pairs
from training_step import TrainingStep

# Dense bf16 (and fp16) operations a second, from the vendor's data sheets.
PEAKS = {'A100': 312e12, 'H100': 989e12, 'H200': 989e12}


def step_options(args: Namespace) -> tuple:
    """What of the command line each step is built by."""
    return args.arch, args.batch_size, args.dtype, args.device


def title(args: Namespace) -> str:
    """What was measured."""
    how = 'compiled' if args.compile else 'eager'
    return (
        f'ViT-{args.arch}, batch {args.batch_size}, {args.dtype}, {how}, '
        f'{name_of(args.device)}'
    )


def print_tables(args: Namespace) -> None:
    """Measure and print all of them."""
    step = TrainingStep(*step_options(args), compiled=args.compile)
    _print_sections(args, step)
    columns = 'part', 'form', 'ms', 'against the first'
    if args.compile:
        eager = TrainingStep(*step_options(args))
        forms = {'compiled': step.run, 'eager': eager.run}
        rows = _form_rows('whole step', forms, args.repeats)
        print_table(f'Compiled and not, {title(args)}', columns, rows)
        del eager, forms
    rows = (
        row
        for part, forms in pairs(step)
        for row in (*_form_rows(part, forms, args.repeats), ())
    )
    print_table(f'With and without, {title(args)}', columns, rows)
    if hasattr(os, 'getloadavg'):
        load = ', '.join(f'{value:.1f}' for value in os.getloadavg())
        print(f'Load average of the machine: {load}')


def _form_rows(part: str, forms: dict, repeats: int) -> Iterator[tuple]:
    seconds = median_seconds(forms, repeats)
    first = next(iter(seconds.values()))
    for form, value in seconds.items():
        yield part, form, f'{value * 1e3:.1f}', f'{value / first:.2f}x'


def _print_sections(args: Namespace, step: TrainingStep) -> None:
    """Measure a step and its sections; a table and a line below it."""
    step.run()
    seconds = step.time(args.repeats)
    memory = step.peak_mebibytes()
    flops = step.flops()
    sections = step.sections(args.repeats)
    whole = sections.pop('step')
    model, words = step.model, step.model.codebook.words
    if not args.compile:
        sections['objective, of it targets'] = _targets_seconds(args, step)
    parts = [v for k, v in sections.items() if ', of it' not in k]
    sections['other'] = whole - sum(parts)
    sections['step, stopping at borders'] = whole
    print_table(
        f'{title(args)}, {len(model.masking.counts)} rounds, K={len(words)}',
        ('section', 'ms', '%'),
        (
            (name, f'{value * 1e3:.1f}', f'{value / whole:.1%}')
            for name, value in sections.items()
        ),
    )
    speed, peak = flops / seconds, _peak_speed(args, step)
    kind = 'allocated' if args.device == 'cuda' else 'above the floor'
    print(
        f'Step without stops {seconds * 1e3:.1f} ms, '
        f'{args.batch_size / seconds:.1f} img/s, {memory:.0f} MiB {kind}, '
        f'{flops / 1e9:.1f} GFLOP,\n{speed / 1e12:.2f} TFLOP/s, MFU '
        f'{speed / peak:.1%} of {peak / 1e12:.2f} TFLOP/s'
    )


@torch.no_grad()
def _targets_seconds(args: Namespace, step: TrainingStep) -> float:
    """Seconds that the objective takes for the targets alone."""
    model = step.model
    shape = model.masking.num_patches, model.backbone.embed_dims
    tokens = torch.randn(2 * args.batch_size, *shape, device=step.device)
    targets = model.codebook.assign(tokens)
    forms = {'targets': lambda: bags_of_codes(targets)}
    return median_seconds(forms, args.repeats)['targets']


def _peak_speed(args: Namespace, step: TrainingStep) -> float:
    """Operations a second: the data sheet's, or of a large product here."""
    if args.device == 'cuda' and args.dtype != 'fp32':
        for known, peak in PEAKS.items():
            if known in torch.cuda.get_device_name():
                return peak
    side = 2048 if args.device == 'cpu' else 8192
    a, b = torch.randn(2, side, side, device=step.device, dtype=step.dtype)
    seconds = median_seconds({'product': lambda: a @ b}, args.repeats)
    return 2 * side**3 / seconds['product']
