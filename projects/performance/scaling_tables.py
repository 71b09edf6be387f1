# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Predicted bytes of large runs, and of small ones that really run."""

from collections.abc import Iterator

import torch
from mmengine.registry import MODELS, init_default_scope

from costs import count, kept_bytes, model_config, saved_bytes, sent_bytes
from measure import print_table
from traffic import measure_memory, measure_traffic

# Patch sizes of the usual ViTs.
NETWORKS = {
    'ViT-B/16': ('b', 16),
    'ViT-L/16': ('l', 16),
    'ViT-H/14': ('h', 14),
}
GLOBAL_BATCH = 2048


def print_tables(gpus: list[int]) -> None:
    """What a process of so many sends in a step, and what it keeps."""
    init_default_scope('mmpretrain')
    sent, kept = [], []
    for name, (arch, patch_size) in NETWORKS.items():
        with torch.device('meta'):
            network = count(MODELS.build(model_config(arch, patch_size)))
        saved = [saved_bytes(arch, patch_size, half) for half in (False, True)]
        for ranks in gpus:
            ddp, fsdp = (sent_bytes(network, ranks, s) for s in (False, True))
            values = sum(ddp.values()), sum(fsdp.values()), ddp['codebook']
            megabytes = [
                f'{value / 1e6:.{digits}f}'
                for value, digits in zip(values, (0, 0, 3))
            ]
            trained = f'{network.trained / 1e6:.1f}'
            sent.append((name, trained, str(ranks), *megabytes))
            batch = GLOBAL_BATCH / ranks
            values = [
                *(
                    sum(kept_bytes(network, ranks, sharded).values())
                    for sharded in (False, True)
                ),
                8 * (network.trained + network.fixed),
                *(batch * each + anyway for each, anyway in saved),
            ]
            gigabytes = [f'{value / 1e9:.1f}' for value in values]
            kept.append((name, str(ranks), f'{batch:g}', *gigabytes))
    print_table(
        'MB that each process sends and receives in a step',
        ('network', 'M trained', 'GPUs', 'DDP', 'FSDP', 'codebook'),
        sent,
    )
    names = 'network', 'GPUs', 'images a GPU', 'kept DDP', 'kept FSDP'
    print_table(
        f'GB on each process, {GLOBAL_BATCH} images a step',
        (*names, 'gathered FSDP', 'activations fp32', '16 bits'),
        kept,
    )


def check(ranks: list[int], memory: bool) -> Iterator[dict]:
    """Measured and predicted bytes of real processes, a row for each."""
    init_default_scope('mmpretrain')
    for number in ranks:
        for sharded in (False, True)[: 1 + (number > 1)]:
            model, measured = measure_traffic(number, sharded)
            # gloo reduces and scatters by an all-reduce.
            predicted = sent_bytes(count(model), number, sharded, 2)
            yield _row('sent', number, sharded, measured, predicted)
            if memory:
                model, measured = measure_memory(number, sharded)
                predicted = kept_bytes(count(model), number, sharded)
                predicted.pop('gradients')
                yield _row('kept', number, sharded, measured, predicted)


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
