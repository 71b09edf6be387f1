# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the decoder predicts in the paper's Tables 3 and 8 instead of codes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.models import AssignmentHead, Mask, Targets, bags_of_codes
from mmmoca.models.initialization import init_transformer
from mmmoca.models.precision import at_least_fp32, no_autocast
from mmmoca.registry import MODELS


class _RegressionHead(AssignmentHead):
    """L_LOC is the distance of a linear prediction by decoder tokens.

    Args:
        out_channels (int): Numbers that are predicted of a patch.
        **kwargs: See :class:`AssignmentHead`.
    """

    def __init__(self, out_channels: int, **kwargs) -> None:
        self.out_channels = out_channels
        super().__init__(**kwargs)

    def build_loc(self, decoder_dims: int) -> None:
        """Build the linear layer.

        Args:
            decoder_dims (int): d.
        """
        self.predictor = nn.Linear(decoder_dims, self.out_channels)

    def init_weights(self) -> None:
        """Initialise the linear layer as the decoder's."""
        super().init_weights()
        if self.lambda_img < 1:
            init_transformer(self.predictor)

    def loss_loc(
        self,
        decoded: Sequence[Tensor],
        masks: Sequence[Mask],
        targets: Targets,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean distance of patches and rounds; see the parent's."""
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
            prediction (Tensor): In the order of ``mask.decoded``,
                (2B, n, out_channels).
            mask (Mask): Patch indices of the round.
            targets (Targets): Targets of the same views.
        """
        raise NotImplementedError


@MODELS.register_module()
class PixelHead(_RegressionHead):
    """The decoder predicts the pixels of the masked patches, as in MAE.

    Pixels are normalised patch by patch; the loss is the mean squared error
    of the predicted patches, those that the student does not see.

    Args:
        patch_size (int): Side of a patch, in pixels.
        in_channels (int): Channels of the images. Defaults to 3.
        condenser (bool): Whether the decoder is to be a condenser. Defaults
            to False: pixels want to be predicted from the encoder's last
            layer (paper, section 4.2, its footnote); Table 8 has both.
        **kwargs: See :class:`AssignmentHead`.

    Raises:
        ValueError: If the decoder is of the other kind.
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
        """Refuse a condenser unless it was asked for; see the parent's."""
        if neck is not None and neck.condenser != self.condenser:
            raise ValueError(
                f'the decoder has condenser={neck.condenser}, but PixelHead '
                f'condenser={self.condenser}: pixels are predicted by the '
                'plain decoder, neck=dict(condenser=False); to try the other, '
                'write condenser=True in both'
            )

    def distance(
        self, prediction: Tensor, mask: Mask, targets: Targets
    ) -> Tensor:
        """Return the mean squared error, a scalar; see the parent's."""
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

    By the cosine distance, a mean over all tokens that enter the decoder, as
    of L_LOC (paper, Table 3).

    Args:
        embed_dims (int): D, width of the teacher's tokens.
        **kwargs: See :class:`AssignmentHead`.
    """

    def __init__(self, embed_dims: int, **kwargs) -> None:
        super().__init__(embed_dims, embed_dims=embed_dims, **kwargs)

    def distance(
        self, prediction: Tensor, mask: Mask, targets: Targets
    ) -> Tensor:
        """Return the mean cosine distance, a scalar; see the parent's."""
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
    """Return the pixels of each patch, less their mean, over deviation.

    Args:
        images (Tensor): (N, C, H, W).
        patch_size (int): P.

    Returns:
        Tensor: (N, L, C * P * P), at least float32.
    """
    pixels = F.unfold(at_least_fp32(images), patch_size, stride=patch_size).mT
    variance, mean = torch.var_mean(pixels, dim=2, keepdim=True)
    return (pixels - mean) / (variance + 1e-6).sqrt()
