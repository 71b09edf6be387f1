# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probing on features that were extracted beforehand."""

from collections.abc import Sequence

import torch
from mmengine.device import get_device
from torch.optim.lr_scheduler import CosineAnnealingLR

from mmmoca.models import BatchedLinearHead

from ..features import FeatureShard

BASE_LRS = [n * 10.0**k for k in range(-4, 1) for n in range(1, 10)]


@torch.random.fork_rng()
def linear_predictions(
    train: FeatureShard,
    val: FeatureShard,
    num_classes: int,
    epochs: int,
    batch_size: int,
    seed: int,
    base_lrs: Sequence[float] = BASE_LRS,
) -> list[dict]:
    """Train linear classifiers with many learning rates, and apply them.

    As in iBOT, this uses SGD with momentum 0.9, a cosine schedule to 0 and no
    weight decay. Unlike in iBOT, the images are not augmented.

    Args:
        train (FeatureShard): All images to train on.
        val (FeatureShard): All images to classify.
        num_classes (int): Number of classes.
        epochs (int): Passes over the training images.
        batch_size (int): Images per step. The learning rates are multiplied by
            ``batch_size / 256``.
        seed (int): Seed of the initialisation and of the order of images.
        base_lrs (Sequence[float]): The learning rates for a batch of 256.
            Defaults to iBOT's 45 rates.

    Returns:
        list[dict]: For each image of ``val``, the same keys as from
        :meth:`~mmmoca.models.LinearProbe.predict`: ``label_places``, (H,),
        ``base_lrs`` and ``num_classes``. ``label_places`` is the rank that
        each of the H classifiers gives the true class (0 is correct).
    """
    device = get_device()
    feats, labels = train.feats.to(device), train.labels.to(device)
    torch.manual_seed(seed)
    head = BatchedLinearHead(feats.shape[1], num_classes, base_lrs).to(device)
    optimizer = torch.optim.SGD(
        head.parameters(), lr=batch_size / 256, momentum=0.9
    )
    schedule = CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(feats)).split(batch_size):
            optimizer.zero_grad()
            head.loss(feats[rows], labels[rows])['loss'].backward()
            optimizer.step()
        schedule.step()
    about = dict(base_lrs=head.base_lrs, num_classes=num_classes)
    return [
        dict(about, label_places=places)
        for x, truth in zip(val.feats.split(256), val.labels.split(256))
        for places in head.places(x.to(device), truth.to(device)).cpu()
    ]
