# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process sends and keeps in a step of 2048 images, predicted.

Parameters are counted on the real network, activations on its forward pass
with fake tensors; the rest is arithmetic.
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

# Patch sizes of the usual ViTs.
NETWORKS = {
    'ViT-B/16': ('b', 16),
    'ViT-L/16': ('l', 16),
    'ViT-H/14': ('h', 14),
}
GLOBAL_BATCH = 2048


def elements(model: 'nn.Module', trained: bool = False) -> int:
    """Numbers in the student, decoder and generators, or those trained."""
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
        or not (trained or name.startswith('teacher.'))
    )


def sent_bytes(model: 'nn.Module', ranks: int) -> dict[str, float]:
    """Bytes that each process sends (and receives) in an optimiser step.

    By ring algorithms, in float32. Nothing else is exchanged: buffers are
    not broadcast, and what is logged is each process's own. Neither batch
    nor autocast change anything.

    Args:
        model (nn.Module): MOCA, on the meta device or any other.
        ranks (int): W, processes.
    """
    share = 4 * (ranks - 1) / ranks
    new_words = model.codebook.num_new_words * model.codebook.words.shape[1]
    return dict(
        gradients=2 * share * elements(model, trained=True),
        # The words, and the MSD of two views.
        codebook=2 * share * (new_words + 2),
    )


def kept_bytes(model: 'nn.Module') -> dict[str, float]:
    """Bytes that a process keeps from step to step, gradients included.

    Those of DDP lie in its buckets, which stay.
    """
    trained = elements(model, trained=True)
    return dict(
        parameters=4 * elements(model),
        gradients=4 * trained,
        moments=8 * trained,
        teacher=sum(p.nbytes for p in model.teacher.parameters()),
        codebook=model.codebook.words.nbytes,
    )


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

        views = [torch.randn(batch_size, 3, side, side) for _ in range(2)]
        hooks = torch.autograd.graph.saved_tensors_hooks
        autocast = torch.autocast('cpu', torch.bfloat16, enabled=half)
        with hooks(pack, lambda tensor: tensor), autocast:
            model.loss(views)
        for tensor in [*model.parameters(), *model.buffers()]:
            storages.pop(tensor.untyped_storage()._cdata, None)
        return sum(storage.nbytes() for storage in storages.values())

    # The teacher, a deep copy, counts as another mode's.
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = MODELS.build(model_cfg).train()
        side = model.backbone.img_size[0]
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

    from measure import print_table
    from training_step import load_recipe

    rows = []
    for name, network in NETWORKS.items():
        cfg = load_recipe(*network).model
        with torch.device('meta'):
            model = MODELS.build(cfg)
        saved = [saved_bytes(cfg, half) for half in (False, True)]
        kept = sum(kept_bytes(model).values())
        for ranks in args.gpus:
            sent, batch = sent_bytes(model, ranks), GLOBAL_BATCH / ranks
            sizes = kept, *(batch * each + anyway for each, anyway in saved)
            rows.append(
                (
                    *(name, f'{elements(model, trained=True) / 1e6:.1f}'),
                    *(str(ranks), f'{sum(sent.values()) / 1e6:.0f}'),
                    f'{sent["codebook"] / 1e6:.3f}',
                    *(f'{batch:g}', *(f'{x / 1e9:.1f}' for x in sizes)),
                )
            )
    names = 'network', 'M trained', 'GPUs', 'MB sent', 'of it codebook'
    names += 'images a GPU', 'GB kept', 'activations fp32', '16 bits'
    print_table(f'Each process, {GLOBAL_BATCH} images a step', names, rows)


if __name__ == '__main__':
    main()
