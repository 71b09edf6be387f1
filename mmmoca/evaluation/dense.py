# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Dense and attentive protocols on patch features extracted before."""

import numpy as np
import torch
from mmengine.device import get_device
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.models import AttentiveHead

from .in_context import PatchBank

BATCH = 16
# CAPI's rates and weight decays of attentive probing.
RATES = [n * 10.0**k for k in range(-5, -1) for n in (1, 2, 5)][:10]
DECAYS = (5e-4, 1e-3, 5e-2)


def mean_iou(
    predictions: list[np.ndarray], masks: list[np.ndarray], num_classes: int
) -> float:
    """Mean intersection over union, of all images together.

    Args:
        predictions (list[np.ndarray]): Class of each pixel, (H, W) each.
        masks (list[np.ndarray]): True classes; pixels of a label outside of
            [0, C) do not count.
        num_classes (int): C, number of classes.

    Returns:
        float: In percent, of the classes that occur in either.
    """
    counts = np.zeros((num_classes, num_classes), np.int64)
    for found, truth in zip(predictions, masks):
        known = truth < num_classes
        pairs = truth[known].astype(np.int64) * num_classes + found[known]
        counts += np.bincount(pairs, minlength=counts.size).reshape(
            counts.shape
        )
    hits = counts.diagonal()
    unions = counts.sum(0) + counts.sum(1) - hits
    return 100 * float((hits[unions > 0] / unions[unions > 0]).mean())


def _enlarged(scores: Tensor, mask: np.ndarray) -> np.ndarray:
    """The best class of each pixel, of scores (C, h, w)."""
    scores = F.interpolate(scores[None], mask.shape, mode='bilinear')
    return scores[0].argmax(dim=0).cpu().numpy()


def in_context_masks(
    train: tuple[np.ndarray, list[np.ndarray]],
    val: tuple[np.ndarray, list[np.ndarray]],
    num_classes: int,
    bank_size: int,
    seed: int = 0,
) -> tuple[list[np.ndarray], int]:
    """Segment images in context, see :class:`PatchBank`.

    Args:
        train (tuple[np.ndarray, list[np.ndarray]]): Patch features of the
            bank's images, (N, D, h, w), and their masks, (H, W) each, of the
            size of the images.
        val (tuple[np.ndarray, list[np.ndarray]]): The same of the images to
            segment.
        num_classes (int): C, number of classes.
        bank_size (int): Patches of the bank.
        seed (int): Of their choice.

    Returns:
        tuple[list[np.ndarray], int]: The predicted masks, (H, W) each, by 30
        neighbours at T = 0.02, and the patches of the bank.
    """
    device = get_device()
    maps, masks = train
    bank = PatchBank(
        num_classes, max(1, bank_size // len(maps)), len(maps), seed
    )
    for index, (part, mask) in enumerate(zip(maps, masks)):
        part = torch.from_numpy(part[None]).to(device)
        bank.add([index], part, torch.from_numpy(mask[None]))
    bank.close()
    found = []
    for part, mask in zip(*val):
        part = torch.from_numpy(part[None]).to(device)
        found.append(_enlarged(bank.predict(part, 30, 0.02)[0], mask))
    return found, bank.size


def linear_masks(
    train: tuple[np.ndarray, list[np.ndarray]],
    val: tuple[np.ndarray, list[np.ndarray]],
    num_classes: int,
    steps: int = 2000,
    seed: int = 0,
) -> list[np.ndarray]:
    """Segment images by batch norm and one linear layer on fixed features.

    With AdamW at 0.001 and a cosine, as DINOv3, but on the same images in each
    epoch.

    Args:
        train (tuple[np.ndarray, list[np.ndarray]]): See
            :func:`in_context_masks`.
        val (tuple[np.ndarray, list[np.ndarray]]): Likewise.
        num_classes (int): C, number of classes.
        steps (int): Of 16 images. Defaults to 2000.
        seed (int): Of initialisation and order.

    Returns:
        list[np.ndarray]: The predicted masks, (H, W) each.
    """
    device = get_device()
    maps = train[0]
    masks = torch.from_numpy(np.stack(train[1])).long()
    masks[masks >= num_classes] = -100  # that cross_entropy ignores
    width = maps.shape[1]
    torch.manual_seed(seed)
    classify = nn.Conv2d(width, num_classes, 1)
    head = nn.Sequential(nn.BatchNorm2d(width), classify).to(device)
    nn.init.normal_(classify.weight, std=0.01)
    nn.init.zeros_(classify.bias)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(maps), (min(BATCH, len(maps)),))
        part = torch.from_numpy(maps[rows.numpy()]).to(device).float()
        truth = masks[rows].to(device)
        logits = F.interpolate(head(part), truth.shape[1:], mode='bilinear')
        optimizer.zero_grad()
        F.cross_entropy(logits, truth).backward()
        optimizer.step()
        schedule.step()
    head.eval()
    with torch.no_grad():
        return [
            _enlarged(head(torch.from_numpy(m[None]).to(device).float())[0], t)
            for m, t in zip(*val)
        ]


def attentive_accuracy(
    train: tuple[np.ndarray, Tensor],
    val: tuple[np.ndarray, Tensor],
    num_classes: int,
    epochs: int,
    batch_size: int,
    seed: int,
) -> dict[str, float]:
    """Attentive probing of CAPI's grid on fixed features.

    A tenth of the training images chooses the classifier.

    Args:
        train (tuple[np.ndarray, Tensor]): Patch features, (N, D, h, w), and
            labels, (N,).
        val (tuple[np.ndarray, Tensor]): The same of the images to classify.
        num_classes (int): Number of classes.
        epochs (int): Passes over the training images.
        batch_size (int): Images a step; the rates are multiplied by
            ``batch_size / 256``.
        seed (int): Of initialisation and order.

    Returns:
        dict[str, float]: ``top1`` in percent, ``base_lr`` and
        ``weight_decay`` of the classifier.
    """
    device = get_device()
    maps, labels = train
    grid = [(rate, decay) for rate in RATES for decay in DECAYS]
    torch.manual_seed(seed)
    rates = [rate for rate, _ in grid]
    head = AttentiveHead(maps.shape[1], num_classes, rates).to(device)
    groups: list[dict] = [
        dict(
            params=[p],
            lr=rate * batch_size / 256,
            weight_decay=decay if p.ndim > 1 else 0.0,
        )
        for (rate, decay), part in zip(grid, head.classifiers)
        for p in part.parameters()
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    order = torch.randperm(len(maps))
    tenth = max(1, len(maps) // 10)
    held_out, rest = order[:tenth], order[tenth:]
    steps = epochs * -(-len(rest) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        [group['lr'] for group in groups],
        total_steps=steps,
        pct_start=0.1,
        cycle_momentum=False,
    )
    for _ in range(epochs):
        for rows in rest[torch.randperm(len(rest))].split(batch_size):
            part = torch.from_numpy(maps[rows.numpy()]).to(device).float()
            optimizer.zero_grad()
            head.loss(part, labels[rows].to(device))['loss'].backward()
            optimizer.step()
            schedule.step()

    def hits(maps: np.ndarray, labels: Tensor) -> Tensor:
        places = [
            head.places(
                torch.from_numpy(part).to(device).float(), truth.to(device)
            ).cpu()
            for part, truth in zip(
                np.array_split(maps, -(-len(maps) // 256)),
                labels.tensor_split(-(-len(maps) // 256)),
            )
        ]
        return (torch.cat(places) == 0).double().mean(dim=0)

    best = int(hits(maps[held_out.numpy()], labels[held_out]).argmax())
    rate, decay = grid[best]
    top1 = 100 * hits(*val)[best].item()
    return dict(top1=top1, base_lr=rate, weight_decay=decay)
