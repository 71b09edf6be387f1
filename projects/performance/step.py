# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How fast a training step is, and the authors' step.

Builds the model, the parameter groups and the optimiser wrapper of
``configs/_base_`` and trains on synthetic views. Prints time, images a second,
operations of the matrix products and memory.

``--reference`` adds the same step as the authors' code takes it, from the same
weights.

Example:
    python projects/performance/step.py --arch b --dtype bf16
    python projects/performance/step.py --reference
"""

import argparse


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--arch', default='b', help='of mmpretrain (b)')
    add('--batch-size', type=int, help='16; on a GPU 256')
    add('--dtype', default='bf16', choices=['fp32', 'bf16', 'fp16'])
    add('--compile', action='store_true')
    add('--device', choices=['cpu', 'cuda'])
    add('--repeats', type=int, default=5)
    add('--rounds', type=int, default=1, help='of processes')
    add('--reference', action='store_true', help="against the authors' step")
    args = parser.parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from functools import partial

    from mmengine.device import get_device

    from measure import measure_apart, name_of
    from mmmoca.evaluation.report import render_table
    from reference_step import ATTENTIONS, NOT_LEAN, ReferenceStep
    from training_step import TrainingStep, count_flops

    found = get_device()
    args.device = args.device or ('cuda' if found == 'cuda' else 'cpu')
    if args.device != found:
        parser.error(
            f'PyTorch trains on {found} here: for cpu hide the GPU by '
            'CUDA_VISIBLE_DEVICES=, for cuda install a build with CUDA'
        )
    if args.device == 'cpu' and args.dtype == 'fp16':
        parser.error('fp16 has no fast CPU kernels; use --dtype bf16')
    batch = args.batch_size or (16 if args.device == 'cpu' else 256)
    if batch < 4:
        parser.error('--batch-size must be 4 or more, for as many new words')
    setting = args.arch, batch, args.dtype, args.device
    ours = partial(TrainingStep, *setting, compiled=args.compile)
    forms = {'ours': ours}
    if args.reference:
        forms['ours, lean_mlp=False'] = partial(ours, options=NOT_LEAN)
        for name in ATTENTIONS:
            forms[f'reference, attention {name}'] = partial(
                ReferenceStep, *setting, attention=name
            )
    costs = measure_apart(forms, args.device, args.repeats, args.rounds)
    products = count_flops(args.arch, batch) / 1e12
    seconds, memory = costs['ours']
    rows = [
        (
            *(name, f'{cost.seconds:.3f}', f'{seconds / cost.seconds:.2f}'),
            *(f'{batch / cost.seconds:.1f}', f'{products / cost.seconds:.2f}'),
            *(f'{cost.mebibytes:.0f}', f'{memory / cost.mebibytes:.2f}'),
        )
        for name, cost in costs.items()
    ]
    print(
        f'\nViT-{args.arch}, batch {batch}, {args.dtype}, '
        f'{"compiled" if args.compile else "eager"}, {name_of(args.device)}; '
        'medians\nTFLOP/s: matrix products of ours; MiB: what the tensors '
        'of a step take besides weights and optimiser state\n'
    )
    columns = 'step', 's', 'ours / it', 'images/s', 'TFLOP/s', 'MiB'
    print(render_table((*columns, 'ours / it'), rows))


if __name__ == '__main__':
    main()
