# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Decoder targets other than assignments (paper, Tables 3 and 8)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.models import AssignmentHead, Mask, Targets, bags_of_codes
from mmmoca.models.initialization import init_transformer
from mmmoca.models.precision import at_least_fp32, no_autocast
from mmmoca.registry import MODELS


class _RegressionHead(AssignmentHead):
    """L_LOC is the distance of a linear prediction from the target.

    The prediction is computed from the decoder's tokens.

    Args:
        out_channels (int): How many numbers are predicted for each patch.
        **kwargs: See :class:`AssignmentHead`.
    """

    def __init__(self, out_channels: int, **kwargs) -> None:
        self.out_channels = out_channels
        super().__init__(**kwargs)

    def build_loc(self, decoder_dims: int) -> None:
        """Build the linear layer.

        Args:
            decoder_dims (int): d, width of the decoder.
        """
        self.predictor = nn.Linear(decoder_dims, self.out_channels)

    def init_weights(self) -> None:
        """Initialise the linear layer like those of the decoder."""
        super().init_weights()
        if self.lambda_img < 1:
            init_transformer(self.predictor)

    def loss_loc(
        self,
        decoded: Sequence[Tensor],
        masks: Sequence[Mask],
        targets: Targets,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Average the distance over rounds; see the parent class."""
        rounds = [
            self.distance(self.predictor(x), mask, targets)
            for x, mask in zip(decoded, masks)
        ]
        bags = bags_of_codes(targets, allow_tf32=self.allow_tf32)
        return sum(rounds) / len(rounds), *bags

    def distance(
        self, prediction: Tensor, mask: Mask, targets: Targets
    ) -> Tensor:
        """Return the mean distance of a round, a scalar.

        Args:
            prediction (Tensor): Predictions in the order of ``mask.decoded``,
                (2B, n, out_channels).
            mask (Mask): Patch indices of the round.
            targets (Targets): Targets of the same views.
        """
        raise NotImplementedError


@MODELS.register_module()
class PixelHead(_RegressionHead):
    """The decoder predicts the pixels of the masked patches, as in MAE.

    Pixels are normalised patch by patch. The loss is the mean squared error of
    the masked patches that enter the decoder.

    Args:
        patch_size (int): Side of a patch, in pixels.
        in_channels (int): Channels of the images. Defaults to 3.
        condenser (bool): Whether the decoder must be a condenser. Defaults to
            False: pixels are better predicted from the encoder's last layer
            (paper, footnote of section 4.2). Table 8 compares both.
        **kwargs: See :class:`AssignmentHead`.

    Raises:
        ValueError: If the decoder is not of the kind that ``condenser`` says.
    """

    def __init__(
        self,
        patch_size: int,
        in_channels: int = 3,
        condenser: bool = False,
        **kwargs,
    ) -> None:
        self.patch_size = patch_size
        self.condenser = condenser
        super().__init__(in_channels * patch_size**2, **kwargs)

    def check_decoder(self, neck: nn.Module | None) -> None:
        """Check the kind of the decoder; see the parent class."""
        if neck is not None and neck.condenser != self.condenser:
            raise ValueError(
                f'the decoder has condenser={neck.condenser}, but PixelHead '
                f'condenser={self.condenser}: pixels are predicted by the '
                'plain decoder, neck=dict(condenser=False); to try the '
                'condenser, write condenser=True in the neck and the head'
            )

    def distance(
        self, prediction: Tensor, mask: Mask, targets: Targets
    ) -> Tensor:
        """Return the mean squared error, a scalar; see the parent class."""
        pixels = normalized_patches(targets.images, self.patch_size)
        index = mask.predicted[..., None]
        with no_autocast(prediction):
            return F.mse_loss(
                at_least_fp32(prediction[:, mask.visible.shape[1] :]),
                pixels.take_along_dim(index, dim=1),
            )


@MODELS.register_module()
class EmbeddingHead(_RegressionHead):
    """The decoder predicts the teacher's token of each patch.

    The loss is the cosine distance. It is averaged over all tokens that enter
    the decoder, like the loss of assignments (paper, Table 3).

    Args:
        embed_dims (int): D, width of the teacher's tokens.
        **kwargs: See :class:`AssignmentHead`.
    """

    def __init__(self, embed_dims: int, **kwargs) -> None:
        super().__init__(embed_dims, embed_dims=embed_dims, **kwargs)

    def distance(
        self, prediction: Tensor, mask: Mask, targets: Targets
    ) -> Tensor:
        """Return the mean cosine distance, a scalar; see the parent class."""
        index = mask.decoded[..., None]
        with no_autocast(prediction):
            similarity = F.cosine_similarity(
                at_least_fp32(prediction),
                at_least_fp32(targets.tokens.take_along_dim(index, dim=1)),
                dim=2,
            )
        return 1 - similarity.mean()


@torch.no_grad()
def normalized_patches(images: Tensor, patch_size: int) -> Tensor:
    """Normalise the pixels of each patch by their mean and deviation.

    Args:
        images (Tensor): (N, C, H, W).
        patch_size (int): P, side of a patch in pixels.

    Returns:
        Tensor: (N, L, C * P * P), at least float32.
    """
    pixels = F.unfold(at_least_fp32(images), patch_size, stride=patch_size).mT
    variance, mean = torch.var_mean(pixels, dim=2, keepdim=True)
    return (pixels - mean) / (variance + 1e-6).sqrt()
