# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from typing import NamedTuple

import torch
from mmengine.model import BaseModule
from torch import Tensor

from mmmoca.registry import MODELS

from .codebook import TeacherTargets
from .masking import Mask
from .objectives import bag_assignment_loss, token_assignment_loss
from .prototypes import PrototypeGenerator

__all__ = ['AssignmentHead', 'Prototypes']


class Prototypes(NamedTuple):
    """Prototypes of one step, unit rows; None where the loss is off.

    Attributes:
        img (Tensor, optional): W^b, (K, D).
        loc (Tensor, optional): W^d, (K, d).
    """

    img: Tensor | None
    loc: Tensor | None


@MODELS.register_module()
class AssignmentHead(BaseModule):
    """Predicts the teacher's assignments, L_IMG and L_LOC.

    Paper, section 3.2. Both predictors compare a feature, not normalised,
    with prototypes that are generated from the current codebook.

    Args:
        embed_dims (int): D, width of words and image embeddings.
        decoder_dims (int, optional): d, width of the decoder. None if
            there is no decoder (``lambda_img=1``).
        lambda_img (float): lambda of equation 1, weight of L_IMG against
            L_LOC, in [0, 1]. Defaults to 0.5.
        kappa (float): Inverse temperature of the predictions, 1 / tau.
            Defaults to 3.

    Raises:
        ValueError: If ``lambda_img`` is outside [0, 1], or it switches L_LOC
            off or on without the decoder being so.
    """

    def __init__(
        self,
        embed_dims: int,
        decoder_dims: int | None = None,
        lambda_img: float = 0.5,
        kappa: float = 3.0,
    ) -> None:
        super().__init__()
        if not 0 <= lambda_img <= 1:
            raise ValueError(
                f'lambda_img must lie in [0, 1], got {lambda_img}'
            )
        if (lambda_img == 1) != (decoder_dims is None):
            raise ValueError(
                'lambda_img=1 switches L_LOC off and needs neck=None, any '
                f'other needs a neck; got lambda_img={lambda_img} and '
                f'decoder width {decoder_dims}'
            )
        self.embed_dims = embed_dims
        self.lambda_img = lambda_img
        self.kappa = kappa
        self.img_generator = (
            PrototypeGenerator(embed_dims, embed_dims)
            if lambda_img > 0
            else None
        )
        self.loc_generator = (
            PrototypeGenerator(embed_dims, decoder_dims)
            if lambda_img < 1
            else None
        )

    def generate_prototypes(self, words: Tensor) -> Prototypes:
        """Generate W^b and W^d from the codebook, once a step.

        Args:
            words (Tensor): Codebook C, (K, D).

        Returns:
            Prototypes: Unit rows.
        """
        return Prototypes(
            *(
                generator and generator(words)
                for generator in (self.img_generator, self.loc_generator)
            )
        )

    def loss_img(
        self,
        image_embedding: Tensor,
        prototypes: Prototypes,
        targets: TeacherTargets,
    ) -> Tensor:
        """Weighted L_IMG of one round, summed over the two views.

        Args:
            image_embedding (Tensor): [AVG] of view 1 and view 2, (2B, D).
            prototypes (Prototypes): Of this step.
            targets (TeacherTargets): Of view 1 and view 2.

        Returns:
            Tensor: 2 lambda times the mean over samples, a scalar.
        """
        opposite = torch.cat(targets.bags.chunk(2)[::-1])  # (2B, K)
        loss = bag_assignment_loss(
            image_embedding, prototypes.img, self.kappa, opposite
        )
        return 2 * self.lambda_img * loss

    def loss_loc(
        self,
        decoded: Tensor,
        prototypes: Prototypes,
        targets: TeacherTargets,
        mask: Mask,
    ) -> Tensor:
        """Weighted L_LOC of one round, summed over the two views.

        Args:
            decoded (Tensor): Decoder tokens, (2B, n, d).
            prototypes (Prototypes): Of this step.
            targets (TeacherTargets): Of view 1 and view 2.
            mask (Mask): Patch indices of the round.

        Returns:
            Tensor: 2 (1 - lambda) times the mean over tokens, a scalar.
        """
        index = mask.decoded[..., None].expand(-1, -1, targets.tokens.shape[2])
        tokens = targets.tokens.gather(1, index)  # (2B, L, D) -> (2B, n, D)
        loss = token_assignment_loss(
            decoded.flatten(0, 1),
            prototypes.loc,
            self.kappa,
            tokens.flatten(0, 1),
            targets.words,
            targets.sharpness,
        )
        return 2 * (1 - self.lambda_img) * loss
