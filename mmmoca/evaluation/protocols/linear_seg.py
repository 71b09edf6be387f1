# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear segmentation on patch features that were extracted beforehand."""

import numpy as np
import torch
from mmengine.device import get_device
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.datasets.masks import IGNORED, count_classes

from .in_context import label_pixels

BATCH = 16


@torch.random.fork_rng()
def linear_masks(
    train: tuple[Tensor, list[np.ndarray]],
    val: tuple[Tensor, list[np.ndarray]],
    steps: int = 2000,
    seed: int = 0,
) -> list[np.ndarray]:
    """Segment images with batch norm and one linear layer on fixed features.

    As in DINOv3, training uses AdamW at a learning rate of 0.001 and a cosine
    schedule. Unlike in DINOv3, the features of each image are computed once,
    without augmentation.

    Args:
        train (tuple[Tensor, list[np.ndarray]]): See
            :func:`~mmmoca.evaluation.protocols.in_context.in_context_masks`.
        val (tuple[Tensor, list[np.ndarray]]): The same for the images to
            segment.
        steps (int): Steps of 16 images. Defaults to 2000.
        seed (int): Seed of the initialisation and of the choice of images.

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
        scores = (head(part[None].to(device).float()) for part in val[0])
        return [
            label_pixels(score, mask.shape)[0].cpu().numpy()
            for score, mask in zip(scores, val[1])
        ]
