# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process of MOCA's pretraining sends and keeps: a model."""

import torch
from mmengine.registry import MODELS
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import mmmoca  # noqa: F401  registers the model


def elements(model: nn.Module, trained: bool = False) -> int:
    """Numbers in the student, decoder and generators, or those trained."""
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
        or not (trained or name.startswith('teacher.'))
    )


def sent_bytes(model: nn.Module, ranks: int) -> dict[str, float]:
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


def kept_bytes(model: nn.Module, ranks: int) -> dict[str, float]:
    """Bytes that a process keeps from step to step.

    Arguments as above. Gradients are freed by ``zero_grad``, but there again
    before the activations are gone; those of DDP lie in its buckets, which
    stay.
    """
    student, trained = elements(model), elements(model, trained=True)
    teacher = sum(parameter.nbytes for parameter in model.teacher.parameters())
    buckets = 0.0 if ranks == 1 else 4.0 * trained
    return dict(
        parameters=4 * student,
        gradients=4 * trained - buckets,
        moments=8 * trained,
        buckets=buckets,
        teacher=float(teacher),
        codebook=float(model.codebook.words.nbytes),
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
        model = MODELS.build(model_cfg).train()
        side = model.backbone.img_size[0]
        small, large = saved(4), saved(8)
    return (large - small) / 4, 2 * small - large


# Images of ImageNet-1k's training set, and the epochs of the paper's recipe.
IMAGES, EPOCHS = 1_281_167, 200
# What gradients can be sent behind: two thirds of a forward and backward pass.
BACKWARD = 2 / 3


def recipe_hours(
    step_seconds: float,
    batch_size: int,
    gpus: int,
    gradient_bytes: float = 0.0,
    bandwidth: float = float('inf'),
    overlapped: float = 0.0,
    images: int = IMAGES,
    epochs: int = EPOCHS,
) -> float:
    """Hours of a recipe on many GPUs, from the step measured on one.

    Validation, checkpoints and the start are left out, and the images are
    taken to be there in time.

    Args:
        step_seconds (float): Of a step on one GPU.
        batch_size (int): Images of each GPU.
        gpus (int): W.
        gradient_bytes (float): What each sends in a step, see
            :func:`sent_bytes`. Defaults to 0.
        bandwidth (float): Bytes a second that each sends. Defaults to no
            limit.
        overlapped (float): Seconds of the step that sending hides behind:
            0 for all of it after the step. Defaults to 0.
        images (int): Of the training set. Defaults to ImageNet-1k's.
        epochs (int): Defaults to the paper's 200.

    Returns:
        float: Hours.
    """
    sending = max(0.0, gradient_bytes / bandwidth - overlapped)
    steps = epochs * (images // (batch_size * gpus))
    return steps * (step_seconds + sending) / 3600
