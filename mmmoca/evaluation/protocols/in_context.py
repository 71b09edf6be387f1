# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""In-context segmentation: patches take the labels of similar patches.

This is the protocol of Balazevic et al., "Towards In-context Scene
Understanding" (NeurIPS 2023), known as Hummingbird. Nothing is trained.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from mmengine.device import get_device
from torch import Tensor
from torch.nn import functional as F

from mmmoca.datasets.masks import count_classes

from ..bank import ShardedBank
from ..features import FeatureShard
from ..gather import gather_samples


def label_shares(
    masks: Tensor, grid: tuple[int, int], num_classes: int
) -> Tensor:
    """Return the share of each class among the pixels of each patch.

    Pixels with a label outside [0, ``num_classes``) count for no class.

    Args:
        masks (Tensor): Labels of the pixels, integers, (B, H, W). H and W are
            multiples of the grid.
        grid (tuple[int, int]): Patch rows and columns (h, w).
        num_classes (int): C, number of classes.

    Returns:
        Tensor: (B, h * w, C), float32; the sum over the classes is the share
        of labelled pixels.

    Raises:
        ValueError: If the masks cannot be divided into the grid.
    """
    height, width = masks.shape[-2:]
    if height % grid[0] or width % grid[1]:
        raise ValueError(
            f'masks of {height} x {width} pixels cannot be divided into '
            f'{grid[0]} x {grid[1]} patches: resize images and masks to a '
            'multiple of the patch size'
        )
    pixels = masks.long().unflatten(2, (grid[1], -1))
    pixels = pixels.unflatten(1, (grid[0], -1))  # (B, h, p, w, q)
    pixels = pixels.transpose(2, 3).flatten(3).flatten(1, 2)  # (B, L, p * q)
    known = (pixels >= 0) & (pixels < num_classes)
    counts = pixels.new_zeros(*pixels.shape[:2], num_classes + 1)
    counts.scatter_add_(
        2, pixels.where(known, num_classes), torch.ones_like(pixels)
    )
    return counts[..., :num_classes] / pixels.shape[2]


def choose_patches(
    shares: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """Draw patches of an image, preferably of its rare classes.

    For each class that occurs in a patch, the image's patches with this class
    are counted. These counts are added up, and the sum is multiplied by a
    random number from U(0, 1), a new one for each patch. The patches with the
    lowest products are drawn.

    Args:
        shares (Tensor): Shares of the labels in each patch of an image,
            (L, C), see :func:`label_shares`.
        count (int): Number of patches.
        generator (torch.Generator): Source of the random numbers, on the CPU.

    Returns:
        Tensor: Sorted indices of at most ``count`` patches, each with a
        labelled pixel, int64.
    """
    present = (shares > 0).float()  # (L, C)
    scores = present @ present.sum(dim=0)  # (L,)
    noise = torch.rand(len(scores), generator=generator).to(scores.device)
    labelled = int((scores > 0).sum())
    scores = (scores * noise).where(scores > 0, torch.inf)
    chosen = scores.topk(min(count, labelled), largest=False).indices
    return chosen.sort().values


class PatchBank:
    """A bank of labelled patches, which may be spread over the ranks.

    All ranks build the bank together. It does not depend on the number of
    ranks. Each rank holds the features of its own images, and all labels.

    Args:
        parts (Iterable[tuple[Sequence[int], Tensor, Tensor]]): Batches of this
            rank's images: the index of each image, which is used to recognise
            images that a padded sampler repeats; patch features, (B, D, h, w);
            and labels, (B, H, W).
        num_classes (int): C, number of classes.
        patches_per_image (int): Largest number of patches of each image.
        num_images (int): Number of images in ``parts``.
        seed (int): Seed of the choice of patches. Defaults to 0.

    Attributes:
        size (int): Number of patches in the whole bank.

    Raises:
        ValueError: If no patch of the bank has a label.
    """

    @torch.no_grad()
    def __init__(
        self,
        parts: Iterable[tuple[Sequence[int], Tensor, Tensor]],
        num_classes: int,
        patches_per_image: int,
        num_images: int,
        seed: int = 0,
    ) -> None:
        # Allocated once, with the first images: joining parts would double the
        # memory.
        bank = torch.empty(0, 0)
        ids: list[Tensor] = []
        table: list[Tensor] = []
        end = 0
        for numbers, maps, masks in parts:
            grid = maps.shape[2], maps.shape[3]
            shares = label_shares(masks.to(maps.device), grid, num_classes)
            feats = _rows(maps)
            patches = shares.shape[1]
            if not ids:
                rows = num_images * min(patches_per_image, patches)
                bank = feats.new_empty(rows, feats.shape[2])
            for number, feat, share in zip(numbers, feats, shares):
                state = np.random.SeedSequence((seed, number))
                generator = torch.Generator().manual_seed(
                    int(state.generate_state(1)[0])
                )
                chosen = choose_patches(share, patches_per_image, generator)
                start, end = end, end + len(chosen)
                bank[start:end] = feat[chosen]
                ids.append(number * patches + chosen.cpu())
                table.append(share[chosen].half().cpu())
        own, none = torch.cat(ids), torch.zeros(end, dtype=torch.int64)
        self._bank = ShardedBank(FeatureShard(own, bank[:end], none))
        # A search returns ids. `_known` maps an id to its row in `_table`.
        self._known, self._table, _ = gather_samples(
            own, torch.cat(table), none
        )
        self.size = len(self._known)
        if not self.size:
            raise ValueError(
                f'no pixel of the bank has a label below {num_classes}: check '
                'its masks and classes'
            )

    def missing(self) -> list[int]:
        """Return the classes without a pixel in the bank."""
        return (self._table.amax(dim=0) == 0).nonzero()[:, 0].tolist()

    @torch.no_grad()
    def predict(self, maps: Tensor, k: int, temperature: float) -> Tensor:
        """Average the label shares of the k most similar patches.

        The weights are the softmax of the cosine similarities divided by the
        temperature. Every prediction needs all ranks: a rank without further
        images calls :meth:`serve` instead.

        Args:
            maps (Tensor): Patch features, (B, D, h, w).
            k (int): Number of neighbours.
            temperature (float): T.

        Returns:
            Tensor: Scores of the classes, (B, C, h, w), float32.
        """
        query = _rows(maps)
        sims, ids, _ = self._bank.search(query.flatten(0, 1), k)
        weights = (sims / temperature).softmax(dim=1)
        rows = torch.searchsorted(self._known, ids.cpu())
        shares = self._table[rows].to(weights)  # (BL, k, C)
        votes = torch.einsum('qk,qkc->qc', weights, shares)
        return votes.unflatten(0, query.shape[:2]).mT.unflatten(
            2, tuple(maps.shape[-2:])
        )

    def serve(self, k: int) -> None:
        """Answer the other ranks' queries until they have no more images."""
        self._bank.serve(k)


def label_pixels(scores: Tensor, size: tuple[int, ...]) -> Tensor:
    """Enlarge the scores of patches, and take the best class of each pixel.

    Args:
        scores (Tensor): Scores of the classes, (B, C, h, w).
        size (tuple[int, ...]): H and W to enlarge to.

    Returns:
        Tensor: Classes, int64, (B, H, W).
    """
    return F.interpolate(scores, size, mode='bilinear').argmax(dim=1)


def in_context_masks(
    train: tuple[Tensor, list[np.ndarray]],
    val: tuple[Tensor, list[np.ndarray]],
    bank_size: int,
    seed: int = 0,
) -> tuple[list[np.ndarray], int]:
    """Segment images with patch features that are in memory.

    Args:
        train (tuple[Tensor, list[np.ndarray]]): Patch features of the
            bank's images, (N, D, h, w), and their masks, (H, W) each, of the
            size of the images.
        val (tuple[Tensor, list[np.ndarray]]): The same for the images to
            segment.
        bank_size (int): Intended number of patches in the bank. Each image
            contributes the same number (at least one), or all its labelled
            patches if it has fewer.
        seed (int): Seed of the choice of patches.

    Returns:
        tuple[list[np.ndarray], int]: The predicted masks, (H, W) each, from 30
        neighbours at T = 0.02; and the number of patches in the bank.
    """
    device = get_device()
    maps, masks = train
    parts = (
        ([index], part[None].to(device), torch.from_numpy(mask[None]))
        for index, (part, mask) in enumerate(zip(maps, masks))
    )
    each = max(1, bank_size // len(maps))
    bank = PatchBank(parts, count_classes(masks), each, len(maps), seed)
    found = []
    for part, mask in zip(*val):
        shares = bank.predict(part[None].to(device), 30, 0.02)
        found.append(label_pixels(shares, mask.shape)[0].cpu().numpy())
    return found, bank.size


def _rows(maps: Tensor) -> Tensor:
    """Normalise the features of each patch, (B, D, h, w) -> (B, L, D)."""
    return F.normalize(maps.float(), dim=1).flatten(2).mT
