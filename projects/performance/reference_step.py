# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The step as the authors' code takes it, from the same weights."""

from collections.abc import Callable
from unittest import mock

import torch
from mmpretrain.models import VisionTransformer
from mmpretrain.models.utils.attention import (
    scaled_dot_product_attention_pyimpl,
)
from torch import Tensor
from torch.nn import functional as F

from mmmoca.models import EncodedTokens, Mask
from objective_forms import KAPPA, Inputs, straightforward
from training_step import MOMENTUM, TrainingStep

# What timm's blocks call since version 0.9, and what they did before.
ATTENTIONS: dict[str, Callable] = dict(
    fused=F.scaled_dot_product_attention,
    products=scaled_dot_product_attention_pyimpl,
)


def embed_all_then_gather(
    student: VisionTransformer, images: Tensor, visible: Tensor
) -> Tensor:
    """Visible patches and their positions (N, n, D), all being embedded."""
    x = student.patch_embed(images)[0] + student.pos_embed[:, 1:]
    return x.gather(1, visible[..., None].repeat(1, 1, x.shape[2]))


class ReferenceStep(TrainingStep):
    """A step without any of this package's optimisations.

    The teacher sees one view after the other. All patches are embedded, and
    the visible ones gathered, in every round. Targets and L_LOC are those of
    `objective_forms.straightforward`. Autocast covers the losses.
    The optimiser is PyTorch's AdamW by default, the EMA a loop, and the
    losses are read in every step. Transformer layers are our own but for the
    activations, which they keep.

    Args:
        *args: Arguments of :class:`TrainingStep`.
        attention (str): A key of ``ATTENTIONS``. Defaults to 'fused'.
        **kwargs: Arguments of :class:`TrainingStep`.
    """

    def __init__(self, *args, attention: str = 'fused', **kwargs) -> None:
        super().__init__(*args, lean_mlp=False, **kwargs)
        self.attention = ATTENTIONS[attention]
        groups = [
            {k: group[k] for k in ('params', 'lr', 'weight_decay')}
            for group in self.wrapper.param_groups
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999))
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.dtype == torch.float16
        )
        # Its loader's workers normalise the views.
        data = self.model.data_preprocessor(self.batch, True)
        self.views = data['inputs']

    def run(self) -> None:
        """Do one whole step."""
        precision = torch.autocast(
            self.device.type, self.dtype, enabled=self.dtype != torch.float32
        )
        with precision:
            losses = self.losses()
            loss = losses['loss_img'] + losses['loss_loc']
        for value in (*losses.values(), loss):
            value.item()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.move_teacher()

    def losses(self) -> dict[str, Tensor]:
        """Both losses as they are weighted; the codebook moves."""
        with mock.patch('mmmoca.models.transformer.attention', self.attention):
            return self._losses()

    def _losses(self) -> dict[str, Tensor]:
        model, codebook = self.model, self.model.codebook
        with torch.no_grad():
            tokens = torch.cat(
                [model.teacher.encode(view).patches for view in self.views]
            )
        masks = model.masking.draw(2 * self.batch_size, self.device)
        images = torch.cat(self.views)
        rounds = [self.encode(images, mask) for mask in masks]
        words = codebook.words.clone()
        for_img = model.head.img_generator(words)
        for_loc = model.head.loc_generator(words)
        decoded = [
            self.decode(encoded, mask) for encoded, mask in zip(rounds, masks)
        ]
        loss_loc, bags, msds = straightforward(
            Inputs(codebook.assign(tokens), masks, for_loc, decoded)
        )
        opposite = torch.cat(bags[::-1])
        loss_img = torch.stack(
            [
                F.kl_div(
                    F.log_softmax(KAPPA * x.avg @ for_img.T, dim=1),
                    opposite,
                    reduction='batchmean',
                )
                for x in rounds
            ]
        ).mean()
        self.move_codebook(codebook.draw_candidates(tokens), torch.stack(msds))
        weight = model.head.lambda_img
        return dict(
            loss_img=2 * weight * loss_img,
            loss_loc=2 * (1 - weight) * loss_loc,
        )

    def encode(self, images: Tensor, mask: Mask) -> EncodedTokens:
        """Student tokens of the visible patches, all having been embedded."""
        student = self.model.backbone
        x = embed_all_then_gather(student, images, mask.visible)
        cls = student.cls_token + student.pos_embed[:, :1]
        x = torch.cat((cls.expand(len(x), -1, -1), x), dim=1)
        for index, layer in enumerate(student.layers, start=1):
            x = layer(x)
            if index == student.tap_layer:
                tap = x
        x = student.ln1(x)
        return EncodedTokens(x[:, 0], x[:, 1:], tap[:, 1:])

    def decode(self, encoded: EncodedTokens, mask: Mask) -> Tensor:
        """Decoder tokens, their positions gathered from a copy an image."""
        neck = self.model.neck
        tokens = (encoded.avg[:, None], neck.input_norm(encoded.tap))
        x = neck.projection(torch.cat(tokens, dim=1))
        hidden = neck.mask_token.repeat(*mask.predicted.shape, 1)
        patches = torch.cat((x[:, 1:], hidden.to(x)), dim=1)
        index = mask.decoded[..., None].repeat(1, 1, x.shape[2])
        positions = neck.positions.repeat(len(x), 1, 1).gather(1, index)
        x = torch.cat((x[:, :1], patches + positions), dim=1)
        for layer in neck.layers:
            x = layer(x)
        return neck.norm(x)[:, 1:].contiguous()

    @torch.no_grad()
    def move_teacher(self) -> None:
        """EMA of one parameter after the other."""
        for target, source in zip(
            self.model.teacher.parameters(), self.model.backbone.parameters()
        ):
            if source.requires_grad:
                target.data = MOMENTUM * target + (1 - MOMENTUM) * source
