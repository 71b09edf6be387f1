# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whole steps against the authors' and against the paper's Table 1."""

from argparse import Namespace
from functools import partial

from measure import compare_apart, measure_apart, print_table
from reference_step import ATTENTIONS, NOT_LEAN, ReferenceStep
from training_step import TrainingStep

# Decoder depth and masking -> minutes an epoch and GB: the paper's Table 1,
# ViT-B/16, batch 2048 on 8 A100.
PAPER = {
    (2, 'full'): (9.00, 30.4),
    (2, 'partial'): (8.15, 23.0),
    (4, 'full'): (10.25, 37.7),
    (4, 'partial'): (8.55, 26.2),
    (8, 'full'): (12.41, 52.4),
    (8, 'partial'): (9.30, 32.6),
    (2, 'two masks'): (10.35, 39.5),
}
MASKING = {
    'full': dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.0,)),
    'partial': dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.45,)),
    'two masks': {},  # the recipe's 55 % and 75 %
}


def reference(args: Namespace) -> None:
    """Measure whole steps, ours and the reference's, in turns."""
    ours = partial(TrainingStep, **args.step, compiled=args.compile)
    compare_apart(
        f'Whole step, {args.title}',
        {
            'ours': ours,
            'ours, lean_mlp=False': partial(ours, options=NOT_LEAN),
            **{
                f'reference, attention {name}': partial(
                    ReferenceStep, **args.step, attention=name
                )
                for name in ATTENTIONS
            },
        },
        *(args.device, args.repeats, args.rounds),
    )


def table1(args: Namespace) -> None:
    """Measure the paper's Table 1."""
    ours = partial(TrainingStep, **args.step, compiled=args.compile)
    builds = {}
    for depth, masking in PAPER:
        options = {
            'model.neck.depth': depth,
            'model.masking': MASKING[masking],
        }
        builds[depth, masking] = partial(ours, options=options)
    measured = measure_apart(builds, args.device, args.repeats, args.rounds)
    rows = []
    for depth, masking in PAPER:
        if masking == 'full':
            continue
        other = 'full' if masking == 'partial' else 'partial'
        row = [str(depth), f'{other} -> {masking}']
        for digits, old, new, paper_old, paper_new in zip(
            (2, 0),
            *(measured[depth, other], measured[depth, masking]),
            *(PAPER[depth, other], PAPER[depth, masking]),
        ):
            row += [
                f'{old:.{digits}f} -> {new:.{digits}f}',
                f'{new / old:.2f}x',
                f'{paper_new / paper_old:.2f}x',
            ]
        rows.append(row)
    names = 'decoder depth', 'decoding', 's a step', 'time', "paper's"
    print_table(
        f"The paper's Table 1, {args.title}",
        (*names, 'MiB', 'memory', "paper's"),
        rows,
        "The paper's ratios: ViT-B/16, batch 2048 on 8 A100. Partial decoding "
        'has one mask.',
    )
