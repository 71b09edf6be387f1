# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process sends and keeps in a step of 2048 images, predicted.

Parameters are counted on the real network, activations on its forward pass
with fake tensors; the rest is arithmetic.
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

# Patch sizes of the usual ViTs.
NETWORKS = {
    'ViT-B/16': ('b', 16),
    'ViT-L/16': ('l', 16),
    'ViT-H/14': ('h', 14),
}
GLOBAL_BATCH = 2048


def sent_bytes(model: 'nn.Module', ranks: int) -> float:
    """Bytes that each process sends (and receives) in an optimiser step.

    By ring algorithms, in float32: gradients, the new words and the MSD of two
    views. Nothing else is exchanged: buffers are not broadcast, and what is
    logged is each process's own. Neither batch nor autocast change anything.

    Args:
        model (nn.Module): MOCA, on the meta device or any other.
        ranks (int): W, processes.
    """
    numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
    codebook = model.codebook
    numbers += codebook.num_new_words * codebook.words.shape[1] + 2
    return 2 * (ranks - 1) / ranks * 4 * numbers


def kept_bytes(model: 'nn.Module') -> int:
    """Bytes that a process keeps from step to step.

    Parameters, the teacher's too, the codebook, gradients (those of DDP lie
    in its buckets, which stay) and the two moments of AdamW.
    """
    parameters = [*model.parameters()]
    trained = sum(p.nbytes for p in parameters if p.requires_grad)
    held = sum(p.nbytes for p in parameters) + model.codebook.words.nbytes
    return held + 3 * trained


def random_views(model: 'nn.Module', batch_size: int) -> list['Tensor']:
    """Two views of each image, (B, 3, H, W) each."""
    import torch

    shape = 2, batch_size, 3, *model.backbone.img_size
    return list(torch.randn(shape))


def saved_bytes(model_cfg: dict, half: bool) -> tuple[float, float]:
    """Bytes that a forward pass saves for the backward pass.

    Counted on the real forward pass with fake tensors of the CPU, each
    storage once, parameters left out.

    Args:
        model_cfg (dict): Config of the model.
        half (bool): Whether under autocast to 16 bits.

    Returns:
        tuple[float, float]: What each image adds, and what a step has anyway:
        the weights in 16 bits and the prototypes.
    """
    import torch
    from mmengine.registry import MODELS
    from torch._subclasses.fake_tensor import FakeTensorMode

    def saved(batch_size: int) -> int:
        storages = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks
        autocast = torch.autocast('cpu', torch.bfloat16, enabled=half)
        with hooks(pack, lambda tensor: tensor), autocast:
            model.loss(random_views(model, batch_size))
        for tensor in [*model.parameters(), *model.buffers()]:
            storages.pop(tensor.untyped_storage()._cdata, None)
        return sum(storage.nbytes() for storage in storages.values())

    # The teacher, a deep copy, counts as another mode's.
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = MODELS.build(model_cfg).train()
        small, large = saved(4), saved(8)
    return (large - small) / 4, 2 * small - large


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    gpus = dict(type=int, nargs='+', default=[8, 64, 512])
    parser.add_argument('--gpus', **gpus)
    args = parser.parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    import torch
    from mmengine.registry import MODELS

    from mmmoca.evaluation.report import render_table
    from training_step import load_recipe

    rows = []
    for name, network in NETWORKS.items():
        cfg = load_recipe(*network).model
        with torch.device('meta'):
            model = MODELS.build(cfg)
        saved = [saved_bytes(cfg, half) for half in (False, True)]
        for ranks in args.gpus:
            batch = GLOBAL_BATCH / ranks
            held = [batch * each + anyway for each, anyway in saved]
            sizes = kept_bytes(model), *held
            sent = f'{sent_bytes(model, ranks) / 1e6:.0f}'
            gigabytes = [f'{size / 1e9:.1f}' for size in sizes]
            rows.append([name, str(ranks), f'{batch:g}', sent, *gigabytes])
    columns = 'network', 'GPUs', 'images per GPU', 'MB sent per step'
    columns += 'GB kept', 'GB activations, fp32', '16 bits'
    print(f'\n{render_table(columns, rows)}')


if __name__ == '__main__':
    main()
