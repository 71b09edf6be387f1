# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process of MOCA's pretraining sends and keeps: a model."""

from pathlib import Path
from typing import NamedTuple

import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from mmpretrain.models import VisionTransformer
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import mmmoca  # noqa: F401  registers the model

RECIPE = Path(__file__).parents[2] / 'configs' / 'moca_vit-b16_200e.py'


class Network(NamedTuple):
    """What the costs depend on, in numbers of elements."""

    trained: int  # parameters with a gradient
    fixed: int  # positions of the student
    teacher: int
    words: int  # K x D
    new_words: int  # of a step, K_new x D


def model_config(arch: str, patch_size: int) -> dict:
    """The recipe's model with another of mmpretrain's architectures."""
    cfg = Config.fromfile(RECIPE).model
    layers = VisionTransformer.arch_zoo[arch]['num_layers']
    cfg.backbone.update(
        arch=arch, patch_size=patch_size, tap_layer=layers * 2 // 3
    )
    return cfg


def count(model: nn.Module) -> Network:
    """Count a MOCA model, on the meta device or any other."""

    def elements(part: nn.Module, *trained: bool) -> int:
        return sum(
            parameter.numel()
            for parameter in part.parameters()
            if parameter.requires_grad in trained
        )

    words = model.codebook.words
    return Network(
        trained=elements(model, True),
        fixed=elements(model.backbone, False),
        teacher=elements(model.teacher, True, False),
        words=words.numel(),
        new_words=model.codebook.num_new_words * words.shape[1],
    )


def sent_bytes(
    network: Network,
    ranks: int,
    sharded: bool = False,
    scatter_factor: int = 1,
) -> dict[str, float]:
    """Bytes that each process sends (and receives) in an optimiser step.

    By ring algorithms, in float32. Nothing else is exchanged: buffers are
    not broadcast, and what is logged is each process's own. Neither batch
    nor autocast change anything.

    Args:
        network (Network): The network.
        ranks (int): W, processes.
        sharded (bool): Whether the student is sharded (FSDP).
        scatter_factor (int): 2 where the backend reduces and scatters by an
            all-reduce, as gloo does. Defaults to 1.

    Returns:
        dict[str, float]: ``gradients``, ``parameters``, ``codebook``.
    """
    share = 4 * (ranks - 1) / ranks
    whole = network.trained + network.fixed
    return dict(
        gradients=scatter_factor * share * whole
        if sharded
        else 2 * share * network.trained,
        # Gathered for the step and for the teacher.
        parameters=2 * share * whole if sharded else 0.0,
        # The words, and the MSD of two views.
        codebook=2 * share * (network.new_words + 2),
    )


def kept_bytes(
    network: Network, ranks: int, sharded: bool = False
) -> dict[str, float]:
    """Bytes that a process keeps from step to step.

    Arguments as above. Gradients are freed by ``zero_grad``, but there again
    before the activations are gone.
    """
    student = network.trained + network.fixed
    parts = ranks if sharded else 1
    return dict(
        parameters=4 * student / parts,
        gradients=4 * (student if sharded else network.trained) / parts,
        moments=8 * network.trained / parts,
        buckets=0.0 if sharded or ranks == 1 else 4.0 * network.trained,
        teacher=4.0 * network.teacher,
        codebook=4.0 * network.words,
    )


def saved_bytes(arch: str, patch_size: int, half: bool) -> tuple[float, float]:
    """Bytes that a forward pass saves for the backward pass.

    Counted on the real forward pass with fake tensors of the CPU, each
    storage once, parameters left out.

    Args:
        arch (str): Architecture of mmpretrain's VisionTransformer.
        patch_size (int): Side of a patch.
        half (bool): Whether under autocast to 16 bits.

    Returns:
        tuple[float, float]: What each image adds, and what a step has anyway:
        the weights in 16 bits and the prototypes.
    """

    def saved(batch_size: int) -> int:
        storages = {}

        def pack(tensor):
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
        model = MODELS.build(model_config(arch, patch_size)).train()
        side = model.backbone.img_size[0]
        small, large = saved(4), saved(8)
    return (large - small) / 4, 2 * small - large
