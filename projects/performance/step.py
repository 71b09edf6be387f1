# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How fast a training step is, and the authors' step.

Builds the model, the parameter groups and the optimiser wrapper of
``configs/_base_`` and trains on synthetic views. Prints time, images a second,
memory, model FLOPs and the share of what a large product reaches.

``--reference`` compares whole steps instead: ours, and the same step as the
authors' code takes it, from the same weights. Each form has a process of its
own, since what the C library keeps of freed memory would pass from one form
to the next.

Example:
    python projects/performance/step.py --arch b --dtype bf16
    python projects/performance/step.py --reference
"""

import argparse


def main() -> None:
    """Measure and print the tables."""
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
    add('--rounds', type=int, default=1, help='of processes, for --reference')
    add('--reference', action='store_true', help="against the authors' step")
    args = parser.parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from functools import partial

    from mmengine.device import get_device

    from measure import compare_apart, name_of
    from reference_step import ATTENTIONS, NOT_LEAN, ReferenceStep
    from speed import print_speed
    from training_step import TrainingStep

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
    names = 'arch', 'batch_size', 'dtype', 'device'
    setting = {name: getattr(args, name) for name in names}
    ours = partial(TrainingStep, **setting, compiled=args.compile)
    args.title = (
        f'ViT-{args.arch}, batch {args.batch_size}, {args.dtype}, '
        f'{"compiled" if args.compile else "eager"}, {name_of(args.device)}'
    )
    if not args.reference:
        print_speed(args, ours())
        return
    theirs = {
        f'reference, attention {name}': partial(
            ReferenceStep, **setting, attention=name
        )
        for name in ATTENTIONS
    }
    compare_apart(
        f'Whole step, {args.title}',
        {
            'ours': ours,
            'ours, lean_mlp=False': partial(ours, options=NOT_LEAN),
            **theirs,
        },
        *(args.device, args.repeats, args.rounds),
    )


if __name__ == '__main__':
    main()
