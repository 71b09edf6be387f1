# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How fast a step is, against a large matrix product."""

from argparse import Namespace

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from measure import (
    median_seconds,
    own_mebibytes,
    peak_bytes,
    print_table,
)
from training_step import TrainingStep


def print_speed(args: Namespace, step: TrainingStep) -> None:
    """Measure a step: time, operations, memory."""
    seconds = median_seconds({'step': step}, args.repeats)['step']
    memory = own_mebibytes(step, args.device)
    peak = peak_bytes(args.device) / 2**20
    speed = count_flops(step) / seconds
    product = product_speed(args.device, step.dtype, args.repeats)
    print_table(
        args.title,
        ('ms', 'images/s', 'TFLOP/s', 'of a large product', 'MiB', 'peak'),
        [
            (
                *(f'{seconds * 1e3:.1f}', f'{args.batch_size / seconds:.1f}'),
                *(f'{speed / 1e12:.2f}', f'{speed / product:.1%}'),
                *(f'{memory:.0f}', f'{peak:.0f}'),
            )
        ],
        'MiB: besides weights and optimiser state.',
    )


def count_flops(step: TrainingStep) -> int:
    """Operations of a step's matrix products, forward and backward.

    Counted on real passes of 4 and of 8 images, since each further image
    adds the same.
    """

    def count(batch_size: int) -> int:
        step.take_batch(batch_size)
        # Kernels that fuse attention would hide its products.
        with (
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            loss, _ = step.model.parse_losses(step.forward())
            loss.backward()
        step.wrapper.zero_grad()
        return counter.get_total_flops()

    own = step.batch_size
    four, eight = count(4), count(8)
    step.take_batch(own)
    # The compiler left out what it was to compile meanwhile, for good.
    torch.compiler.reset()
    return four + (own - 4) * (eight - four) // 4


def product_speed(
    device: torch.device | str,
    dtype: torch.dtype,
    repeats: int,
    side: int | None = None,
) -> float:
    """Operations a second of a large matrix product, 2048 or 8192 a side."""
    side = side or (2048 if torch.device(device).type == 'cpu' else 8192)
    a, b = torch.randn(2, side, side, device=device, dtype=dtype)
    seconds = median_seconds({'product': lambda: a @ b}, repeats)
    return 2 * side**3 / seconds['product']
