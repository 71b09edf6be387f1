# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The token objective in two forms, lean and straightforward."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from measure import peak_bytes, seconds_of
from mmmoca.models import Mask, MaskingPlan, OnlineCodebook, Targets
from mmmoca.models.objectives import token_assignment_loss

KAPPA = 3.0


class Inputs(NamedTuple):
    """What both forms take.

    Attributes:
        targets (Targets): Of L tokens of each of N samples, K words.
        masks (Sequence[Mask]): Of each round.
        prototypes (Tensor): (K, d).
        features (Sequence[Tensor]): Decoder tokens of each round, (N, n, d).
    """

    targets: Targets
    masks: Sequence[Mask]
    prototypes: Tensor
    features: Sequence[Tensor]


def straightforward(inputs: Inputs) -> tuple[Tensor, tuple, tuple]:
    """L_LOC of all rounds from one tensor of all codes; bags; MSDs."""
    targets, masks, prototypes, features = inputs
    with torch.no_grad():
        views = targets.tokens.chunk(2)
        codes, bags, msds = zip(*(_assign(view, targets) for view in views))
        codes = torch.cat(codes)  # (N, L, K)
    logits = [(KAPPA * x).flatten(0, 1) @ prototypes.T for x in features]
    losses = [
        _divergence(codes, mask.decoded, prediction)
        for mask, prediction in zip(masks, logits)
    ]
    return torch.stack(losses).mean(), bags, msds


def _assign(tokens: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of one view, its bags and its mean similarity difference."""
    distance = -F.linear(F.normalize(tokens, dim=2), targets.words)
    distance = distance.float()  # half precision, if autocast is on
    nearest, _ = distance.min(dim=2)
    msd = (distance.mean(dim=2) - nearest).mean()
    codes = (-targets.sharpness * distance).softmax(dim=2)
    bags = F.normalize(codes[:, targets.inner].mean(dim=1), p=1, dim=1)
    return codes, bags, msd


def _divergence(codes: Tensor, position: Tensor, logits: Tensor) -> Tensor:
    """L_LOC of one round."""
    target = codes.gather(1, position[..., None].repeat(1, 1, codes.shape[2]))
    log_prediction = logits.log_softmax(dim=1)
    return F.kl_div(
        log_prediction, target.flatten(0, 1), reduction='batchmean'
    )


def lean(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The same through this package's chunked function."""
    targets, masks, prototypes, features = inputs
    decoded = [mask.decoded for mask in masks]
    return token_assignment_loss(features, decoded, prototypes, KAPPA, targets)


FORMS = dict(straightforward=straightforward, lean=lean)


def make_inputs(
    batch_size: int, num_words: int, device: torch.device | str
) -> Inputs:
    """Random tensors of ViT-B/16's shapes for two views of each image."""
    torch.manual_seed(0)
    device = torch.device(device)
    samples = 2 * batch_size
    codebook = OnlineCodebook(768, (14, 14), num_words).to(device)
    masks = MaskingPlan(196).draw(samples, device)
    prototypes = torch.randn(num_words, 512, device=device)
    features = [
        torch.randn(*mask.decoded.shape, 512, device=device).div_(512**0.5)
        for mask in masks
    ]
    return Inputs(
        codebook.assign(torch.randn(samples, 196, 768, device=device)),
        masks,
        F.normalize(prototypes, dim=1).requires_grad_(),
        [x.requires_grad_() for x in features],
    )


def forward_and_backward(form: Callable, inputs: Inputs) -> Tensor:
    """The loss; gradients are made and dropped."""
    loss, _, _ = form(inputs)
    loss.backward()
    for leaf in (inputs.prototypes, *inputs.features):
        leaf.grad = None
    return loss.detach()


class Objective:
    """One form and its inputs, to be measured in a process of its own.

    Args:
        form (str): A key of ``FORMS``.
        batch_size (int): B, images of two views each.
        num_words (int): K.
        device (str): 'cpu' or 'cuda'.
    """

    def __init__(
        self, form: str, batch_size: int, num_words: int, device: str
    ) -> None:
        inputs = make_inputs(batch_size, num_words, device)
        small = make_inputs(1, 64, device)
        self.run = partial(forward_and_backward, FORMS[form], inputs)
        forward_and_backward(FORMS[form], small)  # loads the kernels
        self.device, self.floor = device, peak_bytes(device)

    def measure(self, repeats: int) -> tuple[float, float, float]:
        """Median seconds, MiB above the inputs', and the loss."""
        seconds = [seconds_of(self.run) for _ in range(repeats)]
        memory = (peak_bytes(self.device) - self.floor) / 2**20
        return statistics.median(seconds), memory, self.run().item()
