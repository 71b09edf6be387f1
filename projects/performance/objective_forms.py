# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The objectives as the authors' code computes them, beside our own."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from mmmoca.models import MaskingPlan, OnlineCodebook, Targets
from mmmoca.models.objectives import token_assignment_loss


def straightforward(
    features: Sequence[Tensor],
    positions: Sequence[Tensor],
    prototypes: Tensor,
    kappa: float,
    targets: Targets,
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`token_assignment_loss` from one tensor of all codes."""
    with torch.no_grad():
        views = targets.tokens.chunk(2)
        assigned = zip(*(_assign(view, targets) for view in views))
        codes, bags, msd = (torch.cat(parts) for parts in assigned)
    logits = [(kappa * x).flatten(0, 1) @ prototypes.T for x in features]
    losses = [
        _divergence(prediction, _codes_at(codes, position))
        for prediction, position in zip(logits, positions)
    ]
    return torch.stack(losses).mean(), bags, msd


def _assign(tokens: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of one view, its bags and its similarity differences."""
    distance = -F.linear(F.normalize(tokens, dim=2), targets.words)
    distance = distance.float()  # half precision, if autocast is on
    nearest, _ = distance.min(dim=2)
    msd = (distance.mean(dim=2) - nearest).mean(dim=1)
    codes = (-targets.sharpness * distance).softmax(dim=2)
    bags = F.normalize(codes[:, targets.inner].mean(dim=1), p=1, dim=1)
    return codes, bags, msd


def _codes_at(codes: Tensor, position: Tensor) -> Tensor:
    index = position[..., None].repeat(1, 1, codes.shape[2])
    return codes.gather(1, index).flatten(0, 1)


def _divergence(logits: Tensor, target: Tensor) -> Tensor:
    return F.kl_div(logits.log_softmax(dim=1), target, reduction='batchmean')


def bag_divergence(
    embeddings: Tensor, prototypes: Tensor, kappa: float, bags: Tensor
) -> Tensor:
    """:func:`bag_assignment_loss` under autocast."""
    return _divergence(kappa * embeddings @ prototypes.T, bags)


FORMS = dict(lean=token_assignment_loss, straightforward=straightforward)


def build(
    form: str, batch_size: int, num_words: int, device: str
) -> Callable[[], None]:
    """One form on random tensors of ViT-B/16's shapes, forward and backward.

    It takes two views of each of B images, and K words.
    """
    torch.manual_seed(0)
    samples = 2 * batch_size
    codebook = OnlineCodebook(768, (14, 14), num_words).to(device)
    masks = MaskingPlan(196).draw(samples, torch.device(device))
    positions = [mask.decoded for mask in masks]
    prototypes = torch.randn(num_words, 512, device=device)
    prototypes = F.normalize(prototypes, dim=1).requires_grad_()
    features = [
        torch.randn(*position.shape, 512, device=device).div_(512**0.5)
        for position in positions
    ]
    leaves = [prototypes, *(x.requires_grad_() for x in features)]
    tokens = torch.randn(samples, 196, 768, device=device)
    targets = codebook.assign(tokens)

    def run() -> None:
        loss, _, _ = FORMS[form](features, positions, prototypes, 3.0, targets)
        loss.backward()
        for leaf in leaves:
            leaf.grad = None

    return run
