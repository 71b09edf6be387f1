# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Two decoders at once, each with its own target (paper, Table 8)."""

from collections.abc import Sequence

from mmengine.model import BaseModule
from torch import Tensor, nn

from mmmoca.models import AssignmentHead, EncodedTokens, Mask, Targets
from mmmoca.registry import MODELS


@MODELS.register_module()
class DecoderPair(BaseModule):
    """Decoders side by side, for a :class:`PairHead`.

    Args:
        decoders (Sequence[dict]): Configs of necks.
        **shared: Arguments of all necks.

    Attributes:
        embed_dims (tuple[int, ...]): d, width of each decoder.
        condenser (bool): Whether any decoder reads an intermediate layer.
    """

    def __init__(self, decoders: Sequence[dict], **shared) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(
            MODELS.build(shared | decoder) for decoder in decoders
        )
        self.embed_dims = tuple(neck.embed_dims for neck in self.decoders)
        self.condenser = any(neck.condenser for neck in self.decoders)

    def forward(
        self, encoded: EncodedTokens, image_embedding: Tensor, mask: Mask
    ) -> list[Tensor]:
        """Return each decoder's tokens; see :class:`CondenserNeck`."""
        return [
            decoder(encoded, image_embedding, mask)
            for decoder in self.decoders
        ]


@MODELS.register_module()
class PairHead(AssignmentHead):
    """L_LOC is the sum of the losses of both decoders of a pair.

    Args:
        targets (Sequence[dict]): Configs of heads, one for each decoder. Only
            their L_LOC is used; ``lambda_img`` and L_IMG are those of this
            head.
        **kwargs: See :class:`AssignmentHead`.

    Raises:
        ValueError: If there are not as many heads as decoders.
    """

    def __init__(self, targets: Sequence[dict], **kwargs) -> None:
        self.targets = targets
        super().__init__(**kwargs)

    def build_loc(self, decoder_dims: Sequence[int]) -> None:
        """Build a head for each decoder.

        Args:
            decoder_dims (Sequence[int]): d, width of each decoder.
        """
        if not isinstance(decoder_dims, tuple) or len(decoder_dims) != len(
            self.targets
        ):
            raise ValueError(
                f'PairHead has {len(self.targets)} targets and needs '
                "as many decoders: neck=dict(type='mmmoca.DecoderPair', ...)"
            )
        shared = dict(
            embed_dims=self.embed_dims,
            lambda_img=0.0,
            kappa=self.kappa,
            allow_tf32=self.allow_tf32,
        )
        self.heads = nn.ModuleList(
            MODELS.build(shared | dict(decoder_dims=dims) | target)
            for dims, target in zip(decoder_dims, self.targets)
        )

    def check_decoder(self, neck: DecoderPair) -> None:
        """Let each head check its decoder; see the parent class."""
        for head, decoder in zip(self.heads, neck.decoders):
            head.check_decoder(decoder)

    def loss_loc(
        self,
        decoded: Sequence[Sequence[Tensor]],
        masks: Sequence[Mask],
        targets: Targets,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sum the heads' losses; see the parent class.

        Args:
            decoded (Sequence[Sequence[Tensor]]): Tokens of each decoder,
                (2B, n, d), for each round.
            masks (Sequence[Mask]): Patch indices of each round.
            targets (Targets): The teacher's assignments of both views.
        """
        parts = [
            head.loss_loc(tokens, masks, targets)
            for head, tokens in zip(self.heads, zip(*decoded))
        ]
        _, bags, msd = parts[0]  # equal for all heads
        return sum(loss for loss, *_ in parts), bags, msd
