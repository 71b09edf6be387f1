# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probing on features that were extracted before."""

from collections.abc import Sequence

import torch
from mmengine.device import get_device
from torch import Tensor

from mmmoca.models import BatchedLinearHead

BASE_LRS = [n * 10.0**k for k in range(-4, 1) for n in range(1, 10)]


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
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(feats)).to(device).split(batch_size):
            optimizer.zero_grad()
            head.loss(feats[rows], labels[rows])['loss'].backward()
            optimizer.step()
        schedule.step()
    hits = torch.cat(
        [
            head.places(query.to(device), truth.to(device)) == 0
            for query, truth in zip(*(part.split(1024) for part in val))
        ]
    )
    top1 = hits.cpu().double().mean(dim=0)
    best = int(top1.argmax())
    return dict(top1=100 * top1[best].item(), base_lr=base_lrs[best])
