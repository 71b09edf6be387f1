# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Segmentation by patch features that were extracted before."""

import numpy as np
import torch
from mmengine.device import get_device
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.datasets.masks import IGNORED

from .in_context import PatchBank

BATCH = 16


def mean_iou(predictions: list[np.ndarray], masks: list[np.ndarray]) -> float:
    """Mean intersection over union, of all images together.

    Args:
        predictions (list[np.ndarray]): Class of each pixel, (H, W) each.
        masks (list[np.ndarray]): True classes, uint8; 255 does not count.

    Returns:
        float: In percent, of the classes that occur in either.
    """
    counts = np.zeros((IGNORED, IGNORED), np.int64)
    for found, truth in zip(predictions, masks):
        known = truth < IGNORED
        pairs = truth[known].astype(np.int64) * IGNORED + found[known]
        counts += np.bincount(pairs, minlength=counts.size).reshape(
            counts.shape
        )
    hits = counts.diagonal()
    unions = counts.sum(0) + counts.sum(1) - hits
    return 100 * float((hits[unions > 0] / unions[unions > 0]).mean())


def count_classes(masks: list[np.ndarray]) -> int:
    """One more than the largest label of masks."""
    return 1 + max(int(m[m < IGNORED].max(initial=0)) for m in masks)


def _enlarged(scores: Tensor, mask: np.ndarray) -> np.ndarray:
    """The best class of each pixel of a mask, of scores (1, C, h, w)."""
    scores = F.interpolate(scores, mask.shape, mode='bilinear')
    return scores[0].argmax(dim=0).cpu().numpy()


def in_context_masks(
    train: tuple[Tensor, list[np.ndarray]],
    val: tuple[Tensor, list[np.ndarray]],
    bank_size: int,
    seed: int = 0,
) -> tuple[list[np.ndarray], int]:
    """Segment images in context, see :class:`PatchBank`.

    Args:
        train (tuple[Tensor, list[np.ndarray]]): Patch features of the
            bank's images, (N, D, h, w), and their masks, (H, W) each, of the
            size of the images.
        val (tuple[Tensor, list[np.ndarray]]): The same of the images to
            segment.
        bank_size (int): Patches of the bank.
        seed (int): Of their choice.

    Returns:
        tuple[list[np.ndarray], int]: The predicted masks, (H, W) each, by 30
        neighbours at T = 0.02, and the patches of the bank.
    """
    device = get_device()
    maps, masks = train
    each = max(1, bank_size // len(maps))
    bank = PatchBank(count_classes(masks), each, len(maps), seed)
    for index, (part, mask) in enumerate(zip(maps, masks)):
        bank.add([index], part[None].to(device), torch.from_numpy(mask[None]))
    bank.close()
    found = [
        _enlarged(bank.predict(part[None].to(device), 30, 0.02), mask)
        for part, mask in zip(*val)
    ]
    return found, bank.size


def linear_masks(
    train: tuple[Tensor, list[np.ndarray]],
    val: tuple[Tensor, list[np.ndarray]],
    steps: int = 2000,
    seed: int = 0,
) -> list[np.ndarray]:
    """Segment images by batch norm and one linear layer on fixed features.

    With AdamW at 0.001 and a cosine, as DINOv3, but on the same images in each
    epoch.

    Args:
        train (tuple[Tensor, list[np.ndarray]]): See
            :func:`in_context_masks`.
        val (tuple[Tensor, list[np.ndarray]]): Likewise.
        steps (int): Of 16 images. Defaults to 2000.
        seed (int): Of initialisation and order.

    Returns:
        list[np.ndarray]: The predicted masks, (H, W) each.
    """
    device = get_device()
    maps, masks = train[0], torch.from_numpy(np.stack(train[1]))
    width = maps.shape[1]
    torch.manual_seed(seed)
    classify = nn.Conv2d(width, count_classes(train[1]), 1)
    head = nn.Sequential(nn.BatchNorm2d(width), classify).to(device)
    nn.init.normal_(classify.weight, std=0.01)
    nn.init.zeros_(classify.bias)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(maps), (min(BATCH, len(maps)),))
        truth = masks[rows].to(device).long()
        logits = head(maps[rows].to(device).float())
        logits = F.interpolate(logits, truth.shape[1:], mode='bilinear')
        optimizer.zero_grad()
        F.cross_entropy(logits, truth, ignore_index=IGNORED).backward()
        optimizer.step()
        schedule.step()
    head.eval()
    with torch.no_grad():
        return [
            _enlarged(head(part[None].to(device).float()), mask)
            for part, mask in zip(*val)
        ]
