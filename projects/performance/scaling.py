# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process sends and keeps, and hours of the recipe, predicted.

Parameters are counted on the real network, activations on its forward pass
with fake tensors; the rest is arithmetic. Gradients go round a ring at the
given bandwidth, after the step or hidden behind its backward pass.

Example:
    python projects/performance/scaling.py --step-ms 156 --images-a-gpu 256
"""

import argparse
import itertools
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
# Images of ImageNet-1k's training set.
IMAGES = 1_281_167
# What gradients can be sent behind: two thirds of a forward and backward pass.
BACKWARD = 2 / 3


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


def recipe_hours(
    step: float, batch_size: int, gpus: int, sending: float = 0.0
) -> float:
    """Hours of 200 epochs of ImageNet-1k on many GPUs.

    Validation, checkpoints and the start are left out, and the images are
    taken to be there in time.

    Args:
        step (float): Seconds of a step on one GPU.
        batch_size (int): Images of each GPU.
        gpus (int): W.
        sending (float): Seconds a step that gradients take on top.
    """
    steps = 200 * (IMAGES // (batch_size * gpus))
    return steps * (step + sending) / 3600


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--gpus', type=int, nargs='+', default=[8, 64, 512])
    add('--step-ms', type=float, metavar='MS', help='hours of the recipe')
    add('--network', choices=NETWORKS, default='ViT-B/16', help='of that step')
    add('--images-a-gpu', type=int, default=256, help='in that step')
    add(
        '--bandwidth',
        type=float,
        nargs='+',
        default=[25, 100, 300],
        metavar='GB/S',
        help='that a GPU sends',
    )
    args = parser.parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    if args.step_ms is None:
        print_bytes(args.gpus)
    else:
        print_hours(args)


def print_bytes(gpus: list[int]) -> None:
    """What a process of so many sends in a step, and what it keeps."""
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
        for ranks in gpus:
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


def print_hours(args: argparse.Namespace) -> None:
    """Hours of the recipe on so many GPUs, predicted from a step on one."""
    import torch
    from mmengine.registry import MODELS

    from measure import print_table
    from training_step import load_recipe

    with torch.device('meta'):
        model = MODELS.build(load_recipe(*NETWORKS[args.network]).model)
    step, batch = args.step_ms / 1e3, args.images_a_gpu
    rows = []
    for gpus, bandwidth in itertools.product(args.gpus, args.bandwidth):
        sending = sum(sent_bytes(model, gpus).values()) / bandwidth / 1e9
        late = recipe_hours(step, batch, gpus, sending)
        beside = max(0.0, sending - BACKWARD * step)
        hidden = recipe_hours(step, batch, gpus, beside)
        rows.append(
            (
                *(str(gpus), str(gpus * batch), f'{bandwidth:g}'),
                *(f'{sending * 1e3:.1f}', f'{late:.2f}', f'{hidden:.2f}'),
            )
        )
    names = 'GPUs', 'images a step', 'GB/s', 'ms to send'
    print_table(
        f'Predicted: hours of 200 epochs, {args.network}, from '
        f'{args.step_ms:g} ms for {batch} images on one GPU',
        (*names, 'h, sent after the step', 'h, behind the backward pass'),
        rows,
    )


if __name__ == '__main__':
    main()
