# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measure the speed of our training step, and of the authors' step.

Builds the model, the parameter groups and the optimiser wrapper of
``configs/_base_`` and trains on synthetic views. Prints time, memory, images
per second, and TFLOP/s of the matrix products.

``--forms`` chooses what is measured: our step (ours), our step with another
setting (such as half_teacher), or the authors' step. The authors' step starts
from the same weights. Its attention is PyTorch's fused one (reference) or that
of older timm (products).

Example:
    python projects/performance/step.py --arch b --dtype bf16
    python projects/performance/step.py --reference
"""

import argparse
from pathlib import Path

# Form of our step -> settings that it changes in the recipe.
OPTIONS = {
    'ours': {},
    'lean_mlp=False': {
        'model.backbone.lean_mlp': False,
        'model.neck.lean_mlp': False,
    },
    'half_teacher': {'model.half_teacher': True},
    'half_residuals': {'model.backbone.half_residuals': True},
}
# Form of the authors' step -> its attention.
REFERENCES = {'reference': 'fused', 'products': 'products'}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--arch', default='b', help='architecture name in mmpretrain (b)')
    add('--batch-size', type=int, help='by default 16, on a GPU 256')
    add('--dtype', default='bf16', choices=['fp32', 'bf16', 'fp16'])
    compiled = (
        'passes: compile whole passes of our step; blocks: compile each '
        'transformer layer and the losses'
    )
    add('--compile', choices=['passes', 'blocks'], help=compiled)
    budget = (
        'share of the activations that compiled code keeps for the backward '
        'pass, 0 to 1'
    )
    add('--memory-budget', type=float, help=budget)
    add('--mode', help='mode of torch.compile')
    add('--repeats', type=int, default=5)
    names = [*OPTIONS, *REFERENCES]
    add('--forms', nargs='+', choices=names, default=['ours'])
    both = "measure our step and the authors'"
    add('--reference', action='store_true', help=both)
    add('--json', type=Path, metavar='FILE', help='write the figures there')
    args = parser.parse_args()
    # This import also checks the versions.
    import mmmoca.import_mmpretrain  # noqa: F401

    # isort: split
    from functools import partial

    from mmengine.device import get_device

    from measure import measure_apart, name_of, report
    from reference_step import ReferenceStep
    from training_step import TrainingStep, count_flops

    device = get_device()  # where a run trains
    if device == 'cpu' and args.dtype == 'fp16':
        parser.error('fp16 has no fast CPU kernels; use --dtype bf16')
    batch = args.batch_size or (16 if device == 'cpu' else 256)
    if batch < 4:
        parser.error('--batch-size must be 4 or more, to give 4 new words')
    setting = args.arch, batch, args.dtype, device
    compiled = args.compile and {'blocks': args.compile == 'blocks'}
    for name in ('memory_budget', 'mode'):
        if compiled and getattr(args, name) is not None:
            compiled[name] = getattr(args, name)
    names = args.forms
    if args.reference:
        names = ['ours', 'lean_mlp=False', *REFERENCES]
    forms = {
        name: partial(ReferenceStep, *setting, attention=REFERENCES[name])
        if name in REFERENCES
        else partial(
            TrainingStep, *setting, compiled=compiled, options=OPTIONS[name]
        )
        for name in names
    }
    costs = measure_apart(forms, device, args.repeats)
    products = count_flops(args.arch, batch) / 1e12
    seconds, memory = next(iter(costs.values()))
    print(
        f'\nViT-{args.arch}, batch {batch}, {args.dtype}, '
        f'{args.compile or "eager"}, {name_of(device)}; '
        'medians\nTFLOP/s: the matrix products of our step, divided by the '
        'time of the row; GiB: what the tensors of a step take besides '
        'weights and optimiser state\n'
    )
    figures = [
        {
            'part': name,
            's': cost.seconds,
            'first row / this row': seconds / cost.seconds,
            'images/s': batch / cost.seconds,
            'TFLOP/s': products / cost.seconds,
            'GiB': cost.mebibytes / 1024,
            'GiB, first row / this row': memory / cost.mebibytes,
        }
        for name, cost in costs.items()
    ]
    report(figures, args.json)


if __name__ == '__main__':
    main()
