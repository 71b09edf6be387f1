# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whole steps against the authors' and against the paper's Table 1."""

import statistics
from argparse import Namespace
from contextlib import ExitStack
from functools import partial

from measure import print_table, take_turns
from processes import own_process
from reference_step import ATTENTIONS, ReferenceStep
from step_tables import step_options, title
from training_step import TrainingStep

# Decoder depth, rounds -> minutes an epoch and GB of full and of partial
# decoding: the paper's Table 1, ViT-B/16, batch 2048 on 8 A100.
PAPER = {
    (2, 1): ((9.00, 30.4), (8.15, 23.0)),
    (4, 1): ((10.25, 37.7), (8.55, 26.2)),
    (8, 1): ((12.41, 52.4), (9.30, 32.6)),
    (2, 2): (None, (10.35, 39.5)),
}
MASKING = {
    'full': dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.0,)),
    'partial': dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.45,)),
    'two masks': None,  # the config's 55 % and 75 %
}
REFERENCES = dict(
    fused="reference, PyTorch's fused attention (timm >= 0.9)",
    products='reference, attention by products (older timm)',
)


def against_reference(args: Namespace) -> None:
    """Measure whole steps, ours and the reference's, in turns."""
    builds = {
        'ours': partial(TrainingStep, compiled=args.compile),
        **{
            REFERENCES[name]: partial(ReferenceStep, attention=name)
            for name in ATTENTIONS
        },
    }
    with ExitStack() as stack:
        steps = {
            name: stack.enter_context(own_process(build, *step_options(args)))
            for name, build in builds.items()
        }
        times = take_turns(
            {name: partial(ask, 'time', 1) for name, ask in steps.items()},
            args.repeats,
        )
        memory = {
            name: (ask('own_mebibytes'), ask('peak_mebibytes'))
            for name, ask in steps.items()
        }
    rows = []
    for name, seconds in times.items():
        ratios = [ours / it for ours, it in zip(times['ours'], seconds)]
        row = [name, f'{statistics.median(seconds):.2f}']
        row.append(f'{statistics.median(ratios):.2f}x')
        for ours, it in zip(memory['ours'], memory[name]):
            row += [f'{it:.0f}', f'{ours / it:.2f}x']
        rows.append(row)
    print_table(
        f'Whole step, {title(args)}',
        ('', 's', 'time', 'step MiB', '', 'process MiB', ''),
        rows,
        'Ratios: ours against each, the time in the same turn. Step: what it '
        'takes besides weights and optimiser state. Process: above the built '
        'model. Medians.',
    )


def table1(args: Namespace) -> None:
    """Measure the paper's Table 1."""

    def measure(depth: int, masking: str) -> tuple[float, float]:
        with own_process(
            TrainingStep,
            *step_options(args),
            compiled=args.compile,
            masking=MASKING[masking],
            decoder_depth=depth,
        ) as ask:
            ask('run')
            return ask('time', args.repeats), ask('peak_mebibytes')

    cells = [(d, m) for d in (2, 4, 8) for m in ('full', 'partial')]
    cells.append((2, 'two masks'))
    turns = take_turns(
        {cell: partial(measure, *cell) for cell in cells},
        args.rounds,
        warm_up=0,
    )
    measured = {
        cell: [statistics.median(values) for values in zip(*results)]
        for cell, results in turns.items()
    }
    changes = [
        ('full -> partial', (d, 'full'), (d, 'partial'), *PAPER[d, 1])
        for d in (2, 4, 8)
    ]
    cells = (2, 'partial'), (2, 'two masks')
    paper = PAPER[2, 1][1], PAPER[2, 2][1]
    changes.append(('partial: 1 -> 2 masks', *cells, *paper))
    rows = []
    for name, before, after, *papers in changes:
        row = [str(before[0]), name]
        for form, old, new, paper_old, paper_new in zip(
            ('{:.2f}', '{:.0f}'), measured[before], measured[after], *papers
        ):
            row += [
                f'{form.format(old)} -> {form.format(new)}',
                f'{new / old:.2f}x',
                f'{paper_new / paper_old:.2f}x',
            ]
        rows.append(row)
    names = 'decoder depth', 'change', 's a step', 'time', "paper's"
    print_table(
        f"The paper's Table 1, {title(args)}",
        (*names, 'MiB', 'memory', "paper's"),
        rows,
        "The paper's ratios: ViT-B/16, batch 2048 on 8 A100.",
    )
