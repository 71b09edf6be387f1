# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear and attentive probing on features that were extracted before."""

from collections.abc import Callable, Sequence
from math import cos, pi

import torch
from mmengine.device import get_device
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from mmmoca.models import AttentiveHead, BatchedLinearHead
from mmmoca.models.parallel_head import ParallelHead

BASE_LRS = [n * 10.0**k for k in range(-4, 1) for n in range(1, 10)]
# CAPI's rates and weight decays of attentive probing.
RATES = [n * 10.0**k for k in range(-5, -1) for n in (1, 2, 5)][:10]
DECAYS = (5e-4, 1e-3, 5e-2)


def linear_accuracy(
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, Tensor],
    num_classes: int,
    epochs: int,
    batch_size: int,
    seed: int,
    base_lrs: Sequence[float] = BASE_LRS,
) -> dict[str, float]:
    """Linear probing of many learning rates at once on fixed features.

    SGD with momentum 0.9 and a cosine to 0, without weight decay, as in
    iBOT; but the images are the same in each epoch.

    Args:
        train (tuple[Tensor, Tensor]): Features (N, D) and labels (N,).
        val (tuple[Tensor, Tensor]): The same of the images to classify.
        num_classes (int): Number of classes.
        epochs (int): Passes over the training images.
        batch_size (int): Images a step; the rates are multiplied by
            ``batch_size / 256``.
        seed (int): Seed of initialisation and order.
        base_lrs (Sequence[float]): The rates, for a batch of 256. Defaults
            to iBOT's 45.

    Returns:
        dict[str, float]: ``top1`` in percent and ``base_lr`` of the rate
        that is best on ``val``, the lowest one of equals.
    """
    device = get_device()
    feats, labels = (part.to(device) for part in train)
    torch.manual_seed(seed)
    head = BatchedLinearHead(feats.shape[1], num_classes, base_lrs).to(device)
    optimizer = torch.optim.SGD(
        head.parameters(), lr=batch_size / 256, momentum=0.9
    )
    schedule = CosineAnnealingLR(optimizer, epochs)
    rows = torch.arange(len(feats))
    for _ in range(epochs):
        _train(head, optimizer, feats, labels, rows, batch_size)
        schedule.step()
    top1 = _top1(head, *val)
    best = int(top1.argmax())
    return dict(top1=top1[best].item(), base_lr=base_lrs[best])


def attentive_accuracy(
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, Tensor],
    num_classes: int,
    epochs: int,
    batch_size: int,
    seed: int,
) -> dict[str, float]:
    """Attentive probing of CAPI's grid on fixed features.

    A tenth of the training images chooses the classifier.

    Args:
        train (tuple[Tensor, Tensor]): Patch features (N, D, h, w) and labels
            (N,).
        val (tuple[Tensor, Tensor]): The same of the images to classify.
        num_classes (int): Number of classes.
        epochs (int): Passes over the training images.
        batch_size (int): Images a step; the rates are multiplied by
            ``batch_size / 256``.
        seed (int): Of initialisation and order.

    Returns:
        dict[str, float]: ``top1`` in percent, ``base_lr`` and
        ``weight_decay`` of the classifier.

    Raises:
        ValueError: If there are fewer than two training images.
    """
    maps, labels = train
    if len(maps) < 2:
        raise ValueError(
            'attentive probing needs two training images that can be read: '
            'one to train on, one to choose by'
        )
    torch.manual_seed(seed)
    grid = [(rate, decay) for rate in RATES for decay in DECAYS]
    rates = [rate for rate, _ in grid]
    head = AttentiveHead(maps.shape[1], num_classes, rates).to(get_device())
    groups: list[dict] = [
        dict(
            params=[p],
            lr=rate * batch_size / 256,
            weight_decay=0.0 if 'bias' in name else decay,
        )
        for (rate, decay), part in zip(grid, head.classifiers)
        for name, p in part.named_parameters()
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    order = torch.randperm(len(maps))
    tenth = max(1, len(maps) // 10)
    held_out, rest = order[:tenth], order[tenth:]
    steps = epochs * -(-len(rest) // batch_size)
    warmup = steps / 10

    def scale(step: int) -> float:
        """Up by a line, then down by a cosine, of however few steps."""
        down = max(0.0, step - warmup) / (steps - warmup)
        return min((step + 1) / (warmup + 1), (1 + cos(pi * down)) / 2)

    schedule = LambdaLR(optimizer, scale)
    for _ in range(epochs):
        _train(head, optimizer, *train, rest, batch_size, schedule.step)
    best = int(_top1(head, maps[held_out], labels[held_out]).argmax())
    rate, decay = grid[best]
    top1 = _top1(head, *val)[best].item()
    return dict(top1=top1, base_lr=rate, weight_decay=decay)


def _train(
    head: ParallelHead,
    optimizer: torch.optim.Optimizer,
    feats: Tensor,
    labels: Tensor,
    rows: Tensor,
    batch_size: int,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Pass once over those rows, in a new order."""
    device = get_device()
    for batch in rows[torch.randperm(len(rows))].split(batch_size):
        optimizer.zero_grad()
        x = feats[batch].to(device).float()
        head.loss(x, labels[batch].to(device))['loss'].backward()
        optimizer.step()
        after_step()


def _top1(head: ParallelHead, feats: Tensor, labels: Tensor) -> Tensor:
    """Accuracy of each classifier in percent, (H,), float64."""
    device = get_device()
    places = [
        head.places(x.to(device).float(), truth.to(device)).cpu()
        for x, truth in zip(feats.split(256), labels.split(256))
    ]
    return 100 * (torch.cat(places) == 0).double().mean(dim=0)
