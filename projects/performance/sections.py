# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Where the time of a step goes."""

import itertools
import statistics
from argparse import Namespace
from collections import defaultdict
from contextlib import ExitStack
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from measure import (
    median_seconds,
    own_mebibytes,
    peak_bytes,
    print_table,
    seconds_of,
    timer,
)
from training_step import TrainingStep

WHOLE = 'step, stopping at borders'


def print_sections(args: Namespace, step: TrainingStep) -> None:
    """Measure a step and its sections; a table and a line below it."""
    seconds = median_seconds({'step': step}, args.repeats)['step']
    memory = own_mebibytes(step, args.device)
    sections = time_sections(step, args.repeats, args.compile)
    flops = count_flops(step)
    whole = sections[WHOLE]
    model, words = step.model, step.model.codebook.words
    print_table(
        f'{args.title}, {len(model.masking.counts)} rounds, K={len(words)}',
        ('section', 'ms', '%'),
        (
            (name, f'{value * 1e3:.1f}', f'{value / whole:.1%}')
            for name, value in sections.items()
        ),
    )
    speed = flops / seconds
    product = product_speed(args.device, step.dtype, args.repeats)
    peak_memory = peak_bytes(args.device) / 2**20
    print(
        f'Step without stops {seconds * 1e3:.1f} ms, '
        f'{args.batch_size / seconds:.1f} img/s, {flops / 1e9:.1f} GFLOP, '
        f'{speed / 1e12:.2f} TFLOP/s,\n{speed / product:.1%} of the '
        f'{product / 1e12:.2f} that a large product reaches; {memory:.0f} MiB '
        f'besides weights and\noptimiser state, peak {peak_memory:.0f} MiB'
    )


def time_sections(
    step: TrainingStep, repeats: int, compiled: bool
) -> dict[str, float]:
    """Median seconds of each section, of what is left, and of the whole.

    The clock waits for the device at the borders of the sections.
    """
    times = defaultdict(list)

    def watch(owner: object, method: str, *names: str) -> None:
        """Time every call of a method; several names go round in turns."""
        function = getattr(owner, method)
        calls = itertools.cycle(names)

        def timed(*args, **kwargs):
            start = timer()
            result = function(*args, **kwargs)
            times[next(calls)].append(timer() - start)
            return result

        watched.enter_context(mock.patch.object(owner, method, timed))

    model, wrapper = step.model, step.wrapper
    with ExitStack() as watched:
        watch(model.data_preprocessor, 'forward', 'preprocessing')
        if compiled:
            watch(model, '_run_forward', 'forward, compiled')
        else:
            rounds = range(1, len(model.masking.counts) + 1)
            encoded = [f'student forward, round {i}' for i in rounds]
            decoded = [f'decoder, round {i}' for i in rounds]
            watch(model, 'encode_teacher', 'teacher forward')
            watch(model.backbone, 'encode', *encoded)
            watch(model.neck, 'forward', *decoded)
            watch(model.head, 'loss', 'objective')
            for name in ('img_generator', 'loc_generator'):
                generator = getattr(model.head, name)
                watch(generator, 'forward', f'objective, of it {name}')
        watch(wrapper, 'backward', 'backward')
        watch(wrapper, '_clip_grad', 'clip')
        watch(wrapper.optimizer, 'step', 'optimiser')
        watch(step, 'move_teacher', 'EMA')
        watch(step, 'move_codebook', 'codebook commit')
        for _ in range(repeats):
            times[WHOLE].append(seconds_of(step))
    sections = {k: statistics.median(spent) for k, spent in times.items()}
    whole = sections.pop(WHOLE)
    parts = [v for k, v in sections.items() if ', of it' not in k]
    return {**sections, 'other': whole - sum(parts), WHOLE: whole}


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
