# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Where the time of a training step goes, and what each optimisation gives.

Builds the model, the parameter groups and the optimiser wrapper of
``configs/_base_`` and trains on synthetic views. Prints the sections of a
step, images a second, memory, model FLOPs and the share of the device's peak
that is used (MFU; where no peak is known, of what a large product reaches).
Then each part with and without its optimisation, the two measured in turns.

``--reference`` compares whole steps instead: ours, and the same step as the
authors' code takes it, from the same weights. ``--table1`` prints the paper's
Table 1: full against partial decoding, and one mask against two. In both each
form has a process of its own, since what the C library keeps of freed memory
would pass from one form to the next.

Example:
    python projects/performance/step.py --arch b --dtype bf16
    python projects/performance/step.py --reference
    python projects/performance/step.py --table1
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
    processes = 'of processes, for --reference and --table1'
    add('--rounds', type=int, default=1, help=processes)
    whole = parser.add_mutually_exclusive_group()
    whole.add_argument('--reference', action='store_true')
    whole.add_argument('--table1', action='store_true')
    args = parser.parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from mmengine.device import get_device

    from measure import name_of
    from sections import print_sections
    from step_comparisons import reference, table1
    from step_pairs import print_pairs
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
    args.step = {name: getattr(args, name) for name in names}
    args.title = (
        f'ViT-{args.arch}, batch {args.batch_size}, {args.dtype}, '
        f'{"compiled" if args.compile else "eager"}, {name_of(args.device)}'
    )
    if args.reference:
        reference(args)
    elif args.table1:
        table1(args)
    else:
        step = TrainingStep(**args.step, compiled=args.compile)
        print_sections(args, step)
        print_pairs(args, step)


if __name__ == '__main__':
    main()
