# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Masks: the patches that the student sees, and those it predicts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmmoca.registry import TASK_UTILS


class Mask(NamedTuple):
    """Patch indices of one masking round, different for each sample.

    Attributes:
        visible (Tensor): Patches that the student sees, (N, n_visible), int64.
        predicted (Tensor): Masked patches that enter the decoder as mask
            embeddings, (N, n_predicted), int64.
    """

    visible: Tensor
    predicted: Tensor

    @property
    def decoded(self) -> Tensor:
        """Tensor: Patches in the order of the decoder's tokens, visible ones
        first, (N, n_visible + n_predicted).
        """
        return torch.cat((self.visible, self.predicted), dim=1)


def check_masks(
    masks: Any, num_samples: int, num_patches: int, name: str
) -> None:
    """Check that a training step can use the masks that a plan has drawn.

    Args:
        masks (Any): What ``draw`` of a plan returned.
        num_samples (int): N.
        num_patches (int): L.
        name (str): Name of the plan's class, for the error message.

    Raises:
        ValueError: If ``masks`` are not masks of N samples. The range of the
            indices is checked only on a CPU, since the host would have to wait
            for a GPU.
    """
    kinds = isinstance(masks, (list, tuple)) and len(masks) > 0
    kinds = kinds and all(isinstance(mask, Mask) for mask in masks)
    parts = [part for mask in masks for part in mask] if kinds else []
    fits = all(_fits(part, num_samples, num_patches) for part in parts)
    if not parts or not fits or not all(m.visible.shape[1] for m in masks):
        shown = [
            f'{part.dtype} {tuple(part.shape)}'
            + (f' from {part.min()} to {part.max()}' if part.numel() else '')
            for part in parts
        ]
        got = ', '.join(shown) or type(masks).__name__
        raise ValueError(
            f'{name}.draw must return a list of Mask, one per round, whose '
            'visible and predicted are int64 indices from 0 to '
            f'{num_patches - 1} of the shape ({num_samples}, n), with at '
            f'least one visible patch, but got {got}'
        )


def _fits(part: Tensor, num_samples: int, num_patches: int) -> bool:
    """Return whether a tensor holds patch indices of all samples."""
    alike = part.dtype == torch.int64 and part.ndim == 2
    if not alike or len(part) != num_samples:
        return False
    if part.device.type != 'cpu' or not part.numel():
        return True
    return bool(part.min() >= 0 and part.max() < num_patches)


@TASK_UTILS.register_module()
class MaskingPlan:
    """Random masking in one or more rounds with partial decoding.

    The paper's section 3.4 ("Partial decoding", "2nd masking round"). Of L
    patches, ``int(L * (1 - mask_ratio))`` are visible in a round and
    ``int(L * (1 - decoder_mask_ratio))`` enter the decoder.

    Two complementary rounds share one permutation P. Each masks the patches
    that the other one sees, and both predict the same patches (if they predict
    equally many)::

        P = [ visible 1 | predicted 1 = predicted 2 | visible 2 | rest ]

    Args:
        num_patches (int): L, patches of an image.
        mask_ratios (Sequence[float] | float): Share of the patches that the
            student does not see, one number for each round, in (0, 1).
        decoder_mask_ratios (Sequence[float] | float): Share of the patches
            that do not enter the decoder, one number for each round. It is at
            least 0 (full decoding) and below the round's mask ratio.
        complementary (bool, optional): Whether round 2 complements round 1.
            Defaults to None: yes if there are two rounds.

    Raises:
        ValueError: If ratios are out of range, or complementary rounds do
            not fit into L patches.
    """

    def __init__(
        self,
        num_patches: int,
        mask_ratios: Sequence[float] | float = (0.55, 0.75),
        decoder_mask_ratios: Sequence[float] | float = (0.35, 0.55),
        complementary: bool | None = None,
    ) -> None:
        mask_ratios = _as_list(mask_ratios)
        decoder_mask_ratios = _as_list(decoder_mask_ratios)
        if len(mask_ratios) != len(decoder_mask_ratios) or not mask_ratios:
            raise ValueError(
                'mask_ratios and decoder_mask_ratios need one number for '
                f'each masking round, got {mask_ratios} and '
                f'{decoder_mask_ratios}'
            )
        if complementary is None:
            complementary = len(mask_ratios) == 2
        if complementary and len(mask_ratios) != 2:
            raise ValueError(
                'complementary=True needs exactly two masking '
                f'rounds, got {len(mask_ratios)}'
            )
        self.num_patches = num_patches
        self.complementary = complementary
        self.counts = [
            _count(num_patches, mask, decoder)
            for mask, decoder in zip(mask_ratios, decoder_mask_ratios)
        ]
        if complementary:
            (visible1, predicted1), (visible2, _) = self.counts
            if visible1 + predicted1 + visible2 > num_patches:
                raise ValueError(
                    'complementary rounds do not fit: round 1 sees '
                    f'{visible1} and predicts {predicted1} patches, round 2 '
                    f'sees {visible2}, together more than {num_patches}; '
                    'raise the second of mask_ratios or the first of '
                    'decoder_mask_ratios, or set complementary=False'
                )

    def draw(self, num_samples: int, device: torch.device) -> list[Mask]:
        """Draw the masks of every round from torch's generator.

        Args:
            num_samples (int): N. Each sample gets its own permutation.
            device (torch.device): Device of the indices.

        Returns:
            list[Mask]: One for each round.
        """
        shape = num_samples, self.num_patches
        draws = 1 if self.complementary else len(self.counts)
        orders = [
            torch.rand(shape, device=device).argsort(dim=1)
            for _ in range(draws)
        ]
        return self.split(*orders)

    def split(self, *orders: Tensor) -> list[Mask]:
        """Cut permutations of the patches into the rounds' masks.

        Args:
            *orders (Tensor): A permutation P for each round, (N, L).
                Complementary rounds need only one.

        Returns:
            list[Mask]: One for each round.
        """
        if self.complementary:
            orders += (self._complement(*orders),)
        return [
            Mask(order[:, :visible], order[:, visible : visible + predicted])
            for order, (visible, predicted) in zip(
                orders, self.counts, strict=True
            )
        ]

    def _complement(self, order: Tensor) -> Tensor:
        """Reorder P as [visible 2 | predicted 1 | rest | visible 1]."""
        (visible, predicted), (visible2, _) = self.counts
        ends = visible, visible + predicted, visible + predicted + visible2
        first, shared, second, rest = order.tensor_split(ends, dim=1)
        return torch.cat((second, shared, rest, first), dim=1)


def _as_list(ratios: Sequence[float] | float) -> list[float]:
    """Return the ratios of all rounds. A number means a single round."""
    return [ratios] if isinstance(ratios, int | float) else [*ratios]


def _count(
    num_patches: int, mask_ratio: float, decoder_mask_ratio: float
) -> tuple[int, int]:
    """Count the visible and the predicted patches of one round."""
    if not 0 <= decoder_mask_ratio < mask_ratio < 1:
        raise ValueError(
            'a decoder mask ratio must be at least 0 (decode every masked '
            'patch) and below its mask ratio, which must be below 1, got '
            f'{decoder_mask_ratio} and {mask_ratio}'
        )
    visible = int(num_patches * (1 - mask_ratio))
    predicted = int(num_patches * (1 - decoder_mask_ratio)) - visible
    if visible < 1 or predicted < 1:
        raise ValueError(
            f'mask ratio {mask_ratio} with decoder mask ratio '
            f'{decoder_mask_ratio} leaves {visible} visible and {predicted} '
            f'predicted of {num_patches} patches; both need at least 1: set '
            'model.masking.mask_ratios and decoder_mask_ratios, or a smaller '
            'model.backbone.patch_size'
        )
    return visible, predicted
