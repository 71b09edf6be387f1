# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Show where the time of a training step goes, by kind of kernel.

Prints how many milliseconds of a step each kind of kernel takes on the GPU,
and for how many the GPU is idle. On a CPU it prints the times of PyTorch's
operators; there the products and softmaxes of attention cannot be told apart
from other products and softmaxes. ``--longest`` lists the kernels that take
most of the time, and how often each runs.

Example:
    python projects/performance/kernels.py --compile no blocks passes
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

# The first pattern that is found in a kernel's name tells its kind.
KINDS = {
    'attention': 'flash|fmha|attention|sdp',
    'optimiser, clip, EMA': 'adam|lerp|multi_tensor|foreach',
    'products': 'triton_tem|^(?!triton).*(gemm|nvjet|xmma|cutlass|cublas'
    '|conv|::(add|ba)?b?mm)',
    'copies': 'memcpy|memset|^(?!triton).*(copy|cat|gather|scatter|index'
    '|fill|zero)',
    'normalisation and pointwise': '',
}


def kind_of(kernel: str) -> str:
    """Return the kind of a kernel, or of an operator, by its name."""
    name = kernel.lower()
    return next(kind for kind, form in KINDS.items() if re.search(form, name))


def busy_time(spans: Iterable[tuple[float, float]]) -> float:
    """Return the total time that is inside any of the spans (start, end)."""
    total, reached = 0.0, float('-inf')
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--arch', default='b', help='architecture name in mmpretrain (b)')
    add('--batch-size', type=int, default=256)
    add('--dtype', default='bf16', choices=['fp32', 'bf16', 'fp16'])
    forms = ['no', 'blocks', 'passes']
    add('--compile', nargs='+', choices=forms, default=forms[:2])
    add('--repeats', type=int, default=3, help='steps to record')
    longest = 'list the N kernels that take most of the time'
    add('--longest', type=int, default=0, metavar='N', help=longest)
    add('--json', type=Path, metavar='FILE', help='write the figures there')
    args = parser.parse_args()
    # This import also checks the versions.
    import mmmoca.import_mmpretrain  # noqa: F401

    # isort: split
    import torch
    from mmengine.device import get_device

    from measure import name_of, report, timer
    from training_step import TrainingStep

    device = get_device()
    figures = []
    for name in args.compile:
        compiled = dict(no=False, blocks='blocks', passes=True)[name]
        setting = args.arch, args.batch_size, args.dtype, device
        step = TrainingStep(*setting, compiled=compiled)
        # The first steps do not count, because they compile.
        for _ in range(3):
            step()
        start = timer()
        for _ in range(args.repeats):
            step()
        seconds = (timer() - start) / args.repeats
        with torch.profiler.profile() as recorded:
            for _ in range(args.repeats):
                step()
            timer()
        spent = Counter()  # microseconds of each kernel
        runs = Counter()
        kinds = Counter(step=seconds * 1e6 * args.repeats)
        if device == 'cuda':
            kernels = [
                event
                for event in recorded.events()
                if event.device_type == torch.autograd.DeviceType.CUDA
                and not event.is_user_annotation
            ]
            for event in kernels:
                spent[event.name] += event.time_range.elapsed_us()
                runs[event.name] += 1
            spans = [(e.time_range.start, e.time_range.end) for e in kernels]
            kinds['idle'] = max(0.0, kinds['step'] - busy_time(spans))
        else:
            for event in recorded.key_averages():
                spent[event.key] += event.self_cpu_time_total
                runs[event.key] += event.count
        for kernel, microseconds in spent.most_common(args.longest):
            print(
                f'{name}: {microseconds / args.repeats / 1e3:8.3f} ms '
                f'{runs[kernel] / args.repeats:6.0f} x {kernel[:110]}'
            )
        for kernel, microseconds in spent.items():
            kinds[kind_of(kernel)] += microseconds
        figures += [
            {
                'part': f'{name}: {kind}',
                'ms': microseconds / args.repeats / 1e3,
                '% of the step': 100 * microseconds / kinds['step'],
            }
            for kind, microseconds in kinds.most_common()
        ]
        del step
    print(
        f'\nViT-{args.arch}, batch {args.batch_size}, {args.dtype}, '
        f'{name_of(device)}; means of {args.repeats} steps\n'
    )
    report(figures, args.json)


if __name__ == '__main__':
    main()
