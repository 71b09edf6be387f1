# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence
from typing import NamedTuple

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmmoca.registry import MODELS

from .masking import Mask
from .objectives import (
    bag_assignment_loss,
    bags_of_codes,
    token_assignment_loss,
)
from .prototypes import PrototypeGenerator
from .targets import Targets


class AssignmentLosses(NamedTuple):
    """Losses of a step, and statistics of their targets.

    Attributes:
        losses (dict[str, Tensor]): The weighted ``loss_img`` and
            ``loss_loc``. A loss that is switched off is missing.
        bags (Tensor): Bag of codes y_T of each view, (2B, K).
        msd (Tensor): Mean similarity difference of each view, (2B, ).
    """

    losses: dict[str, Tensor]
    bags: Tensor
    msd: Tensor


@MODELS.register_module()
class AssignmentHead(BaseModule):
    """Predicts the teacher's assignments and computes L_IMG and L_LOC.

    Paper, section 3.2. For each loss, a feature, which is not normalised, is
    compared with prototypes generated from the current codebook.

    A subclass with another image-level target overrides :meth:`build_img` and
    :meth:`loss_img`. A subclass with another target for the decoder overrides
    :meth:`build_loc` and :meth:`loss_loc`; it may override
    :meth:`check_decoder` to refuse decoders that do not fit this target.

    Args:
        embed_dims (int): D, width of words and image embeddings.
        decoder_dims (int, optional): d, width of the decoder. None without a
            decoder (``lambda_img=1``).
        lambda_img (float): lambda of equation 1, weight of L_IMG against
            L_LOC, in [0, 1]. Defaults to 0.5.
        kappa (float): Inverse temperature of the predictions, 1 / tau.
            Defaults to 3.
        allow_tf32 (bool): Whether a GPU may multiply tokens by words, and
            decoder tokens by prototypes, in TF32 instead of float32. Defaults
            to True.

    Raises:
        ValueError: If ``lambda_img`` is outside [0, 1], ``kappa`` is not
            above 0, L_LOC has no decoder, or there is a decoder although
            ``lambda_img=1`` switches L_LOC off.
    """

    def __init__(
        self,
        embed_dims: int,
        decoder_dims: int | None = None,
        lambda_img: float = 0.5,
        kappa: float = 3.0,
        allow_tf32: bool = True,
    ) -> None:
        super().__init__()
        if not 0 <= lambda_img <= 1:
            raise ValueError(f'lambda_img must be in [0, 1], got {lambda_img}')
        if not kappa > 0:
            raise ValueError(f'kappa must be above 0, got {kappa}')
        if (lambda_img == 1) != (decoder_dims is None):
            raise ValueError(
                'lambda_img=1 switches L_LOC off and needs neck=None, any '
                f'other value needs a neck; got lambda_img={lambda_img} and '
                f'decoder width {decoder_dims}'
            )
        self.embed_dims = embed_dims
        self.lambda_img = lambda_img
        self.kappa = kappa
        self.allow_tf32 = allow_tf32
        if lambda_img > 0:
            self.build_img()
        if lambda_img < 1:
            self.build_loc(decoder_dims)

    def build_img(self) -> None:
        """Build the generator of the prototypes W^b, which L_IMG needs."""
        self.img_generator = PrototypeGenerator(
            self.embed_dims, self.embed_dims
        )

    def build_loc(self, decoder_dims: int) -> None:
        """Build the generator of the prototypes W^d, which L_LOC needs.

        Args:
            decoder_dims (int): d, width of the decoder.
        """
        self.loc_generator = PrototypeGenerator(self.embed_dims, decoder_dims)

    def check_decoder(self, neck: nn.Module | None) -> None:
        """Raise a ValueError for a decoder that does not fit the target.

        This class accepts every decoder; a subclass may refuse some.

        Args:
            neck (nn.Module, optional): The model's decoder, if it has one.
        """

    def loss_img(
        self, embeddings: Sequence[Tensor], bags: Tensor, targets: Targets
    ) -> Tensor:
        """Compute L_IMG (equations 5 and 6).

        Args:
            embeddings (Sequence[Tensor]): Image embeddings of each round,
                view 1 then view 2, (2B, D).
            bags (Tensor): The bag of codes of each view, (2B, K). This method
                swaps the views.
            targets (Targets): The teacher's assignments of both views.

        Returns:
            Tensor: The mean over views and rounds, a scalar.
        """
        prototypes = self.img_generator(targets.words)  # W^b, (K, D)
        opposite = torch.cat(bags.chunk(2)[::-1])  # (2B, K)
        rounds = [
            bag_assignment_loss(embedding, prototypes, self.kappa, opposite)
            for embedding in embeddings
        ]
        return torch.stack(rounds).mean()

    def loss_loc(
        self,
        decoded: Sequence[Tensor],
        masks: Sequence[Mask],
        targets: Targets,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute L_LOC and the bags of codes (equations 2 to 4).

        Args:
            decoded (Sequence[Tensor]): Decoder tokens of each round,
                (2B, n, d).
            masks (Sequence[Mask]): Patch indices of each round.
            targets (Targets): The teacher's assignments of both views.

        Returns:
            tuple[Tensor, Tensor, Tensor]: The loss, a scalar averaged over
            tokens and rounds, followed by the two results of
            :func:`bags_of_codes`.
        """
        return token_assignment_loss(
            decoded,
            [mask.decoded for mask in masks],
            self.loc_generator(targets.words),  # W^d, (K, d)
            self.kappa,
            targets,
            allow_tf32=self.allow_tf32,
        )

    def loss(
        self,
        embeddings: Sequence[Tensor],
        decoded: Sequence[Tensor],
        masks: Sequence[Mask],
        targets: Targets,
    ) -> AssignmentLosses:
        """Compute both losses with their weights, for both views together.

        :meth:`loss_img` and :meth:`loss_loc` are means over the two views.
        This method multiplies them by 2 to get sums.

        Args:
            embeddings (Sequence[Tensor]): Image embeddings of each round,
                view 1 then view 2, (2B, D).
            decoded (Sequence[Tensor]): Decoder tokens of each round,
                (2B, n, d); empty if there is no decoder.
            masks (Sequence[Mask]): Patch indices of each round.
            targets (Targets): The teacher's assignments of both views.

        Returns:
            AssignmentLosses: The weighted losses, the bags and the MSD.

        Raises:
            TypeError: If a subclass's :meth:`loss_img` does not return a
                tensor, or its :meth:`loss_loc` does not return a tuple of
                three.
        """
        if self.lambda_img == 1:
            bags, msd = bags_of_codes(targets, allow_tf32=self.allow_tf32)
        else:
            found = self.loss_loc(decoded, masks, targets)
            if not isinstance(found, tuple) or len(found) != 3:
                raise TypeError(
                    f'{type(self).__name__}.loss_loc must return the loss, '
                    'then both results of bags_of_codes(targets)'
                )
            loss_loc, bags, msd = found
        losses: dict = {}
        if self.lambda_img > 0:
            loss_img = self.loss_img(embeddings, bags, targets)
            if not isinstance(loss_img, Tensor):
                raise TypeError(
                    f'{type(self).__name__}.loss_img must return the loss, a '
                    f'scalar tensor, and not {type(loss_img).__name__}'
                )
            losses['loss_img'] = 2 * self.lambda_img * loss_img
        if self.lambda_img < 1:
            losses['loss_loc'] = 2 * (1 - self.lambda_img) * loss_loc
        return AssignmentLosses(losses, bags, msd)
