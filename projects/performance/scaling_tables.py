# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of scaling.py: tables, and a comparison with real processes."""

import argparse

import torch
from mmengine.registry import MODELS
from rich.table import Table

from _scaling import (
    count,
    kept_bytes,
    model_config,
    saved_bytes,
    sent_bytes,
)
from _traffic import measure_memory, measure_traffic

__all__ = ['check', 'tables']

# Patch sizes of the usual ViTs.
NETWORKS = {
    'ViT-B/16': ('b', 16),
    'ViT-L/16': ('l', 16),
    'ViT-H/14': ('h', 14),
}
GLOBAL_BATCH = 2048


def tables(args: argparse.Namespace) -> list[Table]:
    """What a process sends in a step, and what it keeps."""
    sent = Table(title='MB that each process sends and receives in a step')
    kept = Table(title=f'GB on each process, {GLOBAL_BATCH} images a step')
    for column in ('network', 'M trained', 'GPUs', 'DDP', 'FSDP', 'codebook'):
        sent.add_column(column, justify='right')
    for column in (
        *('network', 'GPUs', 'images a GPU', 'kept DDP', 'kept FSDP'),
        *('gathered FSDP', 'activations fp32', '16 bits'),
    ):
        kept.add_column(column, justify='right')
    modes = (False, True)
    for name, (arch, patch_size) in NETWORKS.items():
        with torch.device('meta'):
            network = count(MODELS.build(model_config(arch, patch_size)))
        saved = [saved_bytes(arch, patch_size, half) for half in (False, True)]
        for ranks in args.gpus:
            costs = [sent_bytes(network, ranks, fsdp) for fsdp in modes]
            sent.add_row(
                *(name, f'{network.trained / 1e6:.1f}', str(ranks)),
                *(f'{sum(cost.values()) / 1e6:.0f}' for cost in costs),
                f'{costs[0]["codebook"] / 1e6:.3f}',
            )
            batch = GLOBAL_BATCH / ranks
            values = [
                *(
                    sum(kept_bytes(network, ranks, fsdp).values())
                    for fsdp in modes
                ),
                8 * (network.trained + network.fixed),
                *(batch * each + anyway for each, anyway in saved),
            ]
            kept.add_row(
                *(name, str(ranks), f'{batch:g}'),
                *(f'{value / 1e9:.1f}' for value in values),
            )
    return [sent, kept]


def check(args: argparse.Namespace) -> list[dict]:
    """Measured and predicted bytes of real processes, a row for each."""
    rows = []
    for ranks in args.ranks:
        for sharded in (False, True)[: 1 + (ranks > 1)]:
            model, measured = measure_traffic(ranks, sharded)
            predicted = sent_bytes(count(model), ranks, sharded, 2)
            rows.append(_row('sent', ranks, sharded, measured, predicted))
            if args.memory:
                model, measured = measure_memory(ranks, sharded)
                predicted = kept_bytes(count(model), ranks, sharded)
                predicted.pop('gradients')
                rows.append(_row('kept', ranks, sharded, measured, predicted))
    return rows


def _row(kind, ranks, sharded, measured, predicted) -> dict:
    total = sum(predicted.values())
    return dict(
        bytes=kind,
        ranks=ranks,
        mode='FSDP' if sharded else 'DDP' if ranks > 1 else 'alone',
        measured=measured,
        predicted=total,
        ratio=measured / total if total else None,
    )
