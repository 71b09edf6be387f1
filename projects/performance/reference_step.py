# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Our training step, computed as in the authors' code."""

import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip

from collections.abc import Sequence
from unittest import mock

import torch
from mmpretrain.models.utils.attention import (
    scaled_dot_product_attention_pyimpl,
)
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.models import MOCAViT, Targets, transformer
from mmmoca.models.transformer import Attention
from mmmoca.models.vit import EncodedTokens
from training_step import MOMENTUM, TrainingStep

# Attention as timm's blocks have called it since version 0.9, and as they
# computed it before.
ATTENTIONS = dict(
    fused=F.scaled_dot_product_attention,
    products=scaled_dot_product_attention_pyimpl,
)
OPTIONS = {
    'model.backbone.lean_mlp': False,
    'model.neck.lean_mlp': False,
    'optim_wrapper.optimizer.fused': None,
}


encode_together = MOCAViT.encode_rounds


def encode_one_by_one(
    encoder: MOCAViT, images: Tensor, rounds: Sequence[Tensor | None]
) -> list[EncodedTokens]:
    """Run ``encode_rounds`` with a pass for each round."""
    passes = [encode_together(encoder, images, [part]) for part in rounds]
    return [encoded for (encoded,) in passes]


def attend_to_unbound(
    layer: Attention, qkv: Tensor, angles: Tensor | None
) -> Tensor:
    """Do what ``Attention._mix`` does, but split the tensor as timm does."""
    heads = qkv.unflatten(2, (3, layer.num_heads, layer.head_dims))
    heads = heads.permute(2, 0, 3, 1, 4)  # (3, B, heads, n, d)
    x = transformer.attention(*heads.unbind(0))
    return x.transpose(1, 2).flatten(2)


def embed_all_then_gather(
    encoder: MOCAViT, images: Tensor, visible: Tensor | None
) -> Tensor:
    """Embed all patches, and take the visible ones, (N, n, D)."""
    x = encoder.patch_embed(images)[0] + encoder.pos_embed[:, 1:]
    if visible is None:
        return x
    return x.gather(1, visible[..., None].repeat(1, 1, x.shape[2]))


@torch.no_grad()
def update_in_a_loop(
    teacher: nn.Module, student: nn.Module, momentum: float
) -> None:
    """Update the EMA of one parameter after the other."""
    for target, source in zip(teacher.parameters(), student.parameters()):
        if source.requires_grad:
            target.data = momentum * target + (1 - momentum) * source


def straightforward(
    features: Sequence[Tensor],
    positions: Sequence[Tensor],
    prototypes: Tensor,
    kappa: float,
    targets: Targets,
    allow_tf32: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``token_assignment_loss`` from one tensor of all assignments.

    Args:
        features (Sequence[Tensor]): Decoder tokens of each round, (2B, n, d).
        positions (Sequence[Tensor]): Their patch indices, (2B, n).
        prototypes (Tensor): W^d, (K, d).
        kappa (float): Inverse temperature of the predictions.
        targets (Targets): The teacher's tokens, and the codebook.
        allow_tf32 (bool): Not used, since autocast chooses the precision.

    Returns:
        tuple[Tensor, Tensor, Tensor]: The loss, a scalar; bags of codes,
        (2B, K); mean similarity differences, (2B,).
    """
    with torch.no_grad():
        views = targets.tokens.chunk(2)
        assigned = zip(*(_assign(view, targets) for view in views))
        codes, bags, msd = (torch.cat(parts) for parts in assigned)
    logits = [(kappa * x).flatten(0, 1) @ prototypes.T for x in features]
    losses = [
        _divergence(prediction, _codes_at(codes, position))
        for prediction, position in zip(logits, positions)
    ]
    return torch.stack(losses).mean(), bags, msd


def _assign(tokens: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Return the codes, bags and msd of one view of each image."""
    distance = -F.linear(F.normalize(tokens, dim=2), targets.words)
    distance = distance.float()  # from half precision under autocast
    nearest, _ = distance.min(dim=2)
    msd = (distance.mean(dim=2) - nearest).mean(dim=1)
    codes = (-targets.sharpness * distance).softmax(dim=2)
    bags = F.normalize(codes[:, targets.inner].mean(dim=1), p=1, dim=1)
    return codes, bags, msd


def _codes_at(codes: Tensor, position: Tensor) -> Tensor:
    index = position[..., None].repeat(1, 1, codes.shape[2])
    return codes.gather(1, index).flatten(0, 1)


def _divergence(logits: Tensor, target: Tensor) -> Tensor:
    return F.kl_div(logits.log_softmax(dim=1), target, reduction='batchmean')


def bag_divergence(
    embeddings: Tensor, prototypes: Tensor, kappa: float, bags: Tensor
) -> Tensor:
    """Compute ``bag_assignment_loss``, but under autocast."""
    return _divergence(kappa * embeddings @ prototypes.T, bags)


class ReferenceStep(TrainingStep):
    """A step without any of this package's optimisations.

    The teacher sees one view after the other, the student one round after
    the other. All patches are embedded, and the visible ones gathered, in
    every round. Both losses are those of this module, under autocast, and the
    host reads their values in every step. The optimiser is PyTorch's AdamW
    with its defaults, and the EMA is a loop over parameters. Decoder and
    transformer layers are ours, except that they keep all activations.

    Args:
        *args: Arguments of :class:`TrainingStep`.
        attention (str): A key of ``ATTENTIONS``. Defaults to 'fused'.
        **kwargs: Arguments of :class:`TrainingStep`.
    """

    def __init__(self, *args, attention: str = 'fused', **kwargs) -> None:
        super().__init__(*args, options=OPTIONS, **kwargs)
        self.attention = ATTENTIONS[attention]
        # In the authors' code the loader's workers normalise the views.
        self.batch = self.model.data_preprocessor(self.batch, True)
        self.model.data_preprocessor.forward = lambda batch, _: batch
        self.model.encode_teacher = self.encode_teacher
        self.our_loss, self.model.loss = self.model.loss, self.loss

    @torch.no_grad()
    def encode_teacher(self, views: Tensor) -> Tensor:
        """Return the teacher's patch tokens, (2B, L, D)."""
        encode = self.model.teacher.encode
        return torch.cat([encode(view).patches for view in views.chunk(2)])

    def loss(self, *args) -> dict[str, object]:
        """Return what :meth:`MOCA.loss` returns."""
        models = 'mmmoca.models'
        with (
            mock.patch.object(transformer, 'attention', self.attention),
            mock.patch.object(Attention, '_mix', attend_to_unbound),
            mock.patch.multiple(
                MOCAViT,
                encode_rounds=encode_one_by_one,
                _embed_patches=embed_all_then_gather,
            ),
            mock.patch.multiple(
                f'{models}.assignment_head',
                token_assignment_loss=straightforward,
                bag_assignment_loss=bag_divergence,
            ),
        ):
            losses = self.our_loss(*args)
        for name in ('loss_img', 'loss_loc'):
            losses[name].item()
        return losses

    def move_teacher(self) -> None:
        """Update the teacher with the student's weights."""
        update_in_a_loop(self.model.teacher, self.model.backbone, MOMENTUM)
