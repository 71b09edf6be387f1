# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process sends and keeps, by network, processes and batch.

A small model of the recipe in ``configs/``: parameters are counted on the
real network, activations on its forward pass with fake tensors; the rest is
arithmetic. ``--check`` compares it with what real processes on this machine
send, by the kernel's counters of their sockets, and keep (Linux).

``--step-ms`` predicts the hours of the recipe on many GPUs from the step that
was measured on one: gradients go round a ring at the given bandwidth, after
the step or hidden behind its backward pass.

Example:
    python projects/performance/scaling.py --step-ms 156 --images-a-gpu 256
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator

# Patch sizes of the usual ViTs.
NETWORKS = {
    'ViT-B/16': ('b', 16),
    'ViT-L/16': ('l', 16),
    'ViT-H/14': ('h', 14),
}
GLOBAL_BATCH = 2048


def main() -> None:
    """Print the tables, or the comparison as JSON lines."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--gpus', type=int, nargs='+', default=[8, 64, 512])
    add('--check', action='store_true', help='a small network on gloo instead')
    add('--ranks', type=int, nargs='+', default=[1, 2, 4])
    add('--memory', action='store_true', help='check memory, too (3 GB)')
    add('--step-ms', type=float, metavar='MS', help='hours of the recipe')
    add('--network', choices=NETWORKS, default='ViT-B/16', help='of that step')
    add('--images-a-gpu', type=int, default=256, help='in that step')
    add('--epochs', type=int, default=200)
    add(
        '--bandwidth',
        type=float,
        nargs='+',
        default=[25, 100, 300],
        metavar='GB/S',
        help='that a GPU sends',
    )
    args = parser.parse_args()
    if args.step_ms is not None and args.step_ms <= 0:
        parser.error(f'--step-ms must be above 0, got {args.step_ms:g}')
    if args.check and sys.platform != 'linux':
        parser.error('--check reads counters of Linux')
    import mmmoca  # noqa: F401  checks the installation before all else

    if args.step_ms is not None:
        print_hours(args)
        return
    if not args.check:
        print_tables(args.gpus)
        return
    for row in check(args.ranks, args.memory):
        print(json.dumps(row), flush=True)


def print_tables(gpus: list[int]) -> None:
    """What a process of so many sends in a step, and what it keeps."""
    import torch
    from mmengine.registry import MODELS

    from costs import elements, kept_bytes, saved_bytes, sent_bytes
    from measure import print_table
    from training_step import load_recipe

    sent, kept = [], []
    for name, network in NETWORKS.items():
        cfg = load_recipe(*network).model
        with torch.device('meta'):
            model = MODELS.build(cfg)
        saved = [saved_bytes(cfg, half) for half in (False, True)]
        trained = f'{elements(model, trained=True) / 1e6:.1f}'
        for ranks in gpus:
            parts = sent_bytes(model, ranks)
            sent.append(
                (
                    *(name, trained, str(ranks)),
                    f'{sum(parts.values()) / 1e6:.0f}',
                    f'{parts["codebook"] / 1e6:.3f}',
                )
            )
            batch = GLOBAL_BATCH / ranks
            values = [
                sum(kept_bytes(model, ranks).values()),
                *(batch * each + anyway for each, anyway in saved),
            ]
            gigabytes = [f'{value / 1e9:.1f}' for value in values]
            kept.append((name, str(ranks), f'{batch:g}', *gigabytes))
    print_table(
        'MB that each process sends and receives in a step',
        ('network', 'M trained', 'GPUs', 'MB', 'codebook'),
        sent,
    )
    names = 'network', 'GPUs', 'images a GPU', 'kept'
    print_table(
        f'GB on each process, {GLOBAL_BATCH} images a step',
        (*names, 'activations fp32', '16 bits'),
        kept,
    )


def print_hours(args: argparse.Namespace) -> None:
    """Hours of the recipe on so many GPUs, predicted from a step on one."""
    import torch
    from mmengine.registry import MODELS

    from costs import BACKWARD, recipe_hours, sent_bytes
    from measure import print_table
    from training_step import load_recipe

    with torch.device('meta'):
        model = MODELS.build(load_recipe(*NETWORKS[args.network]).model)
    step = args.step_ms / 1e3
    rows = []
    for gpus, bandwidth in itertools.product(args.gpus, args.bandwidth):
        sent = sum(sent_bytes(model, gpus).values())
        hours = [
            recipe_hours(
                *(step, args.images_a_gpu, gpus, sent, bandwidth * 1e9),
                overlapped=overlapped,
                epochs=args.epochs,
            )
            for overlapped in (0.0, BACKWARD * step)
        ]
        rows.append(
            (
                *(str(gpus), str(gpus * args.images_a_gpu), f'{bandwidth:g}'),
                f'{sent / bandwidth / 1e6:.1f}',
                *(f'{value:.2f}' for value in hours),
            )
        )
    names = 'GPUs', 'images a step', 'GB/s', 'ms to send'
    print_table(
        f'Predicted: hours of {args.epochs} epochs, {args.network}, from '
        f'{args.step_ms:g} ms for {args.images_a_gpu} images on one GPU',
        (*names, 'h, sent after the step', 'h, behind the backward pass'),
        rows,
        'Without validation and checkpoints; images never late.',
    )


def check(ranks: list[int], memory: bool) -> Iterator[dict]:
    """Measured and predicted bytes of real processes, a row for each.

    Memory is what a larger network keeps more than the demo's, so that what
    the libraries take does not count.
    """
    from torch import nn

    from costs import kept_bytes, sent_bytes
    from traffic import measure

    def between_steps(model: nn.Module, processes: int) -> float:
        parts = kept_bytes(model, processes)
        return sum(parts.values()) - parts['gradients']

    for processes in ranks:
        model, sent, kept = measure(processes)
        predicted = sum(sent_bytes(model, processes).values())
        yield _row('sent', processes, sent, predicted)
        if memory:
            larger, _, more = measure(processes, large=True)
            predicted = between_steps(larger, processes) - between_steps(
                model, processes
            )
            yield _row('kept', processes, more - kept, predicted)


def _row(kind: str, ranks: int, measured: float, predicted: float) -> dict:
    row = dict(bytes=kind, ranks=ranks, measured=measured)
    ratio = measured / predicted if predicted else None
    return dict(**row, predicted=predicted, ratio=ratio)


if __name__ == '__main__':
    main()
