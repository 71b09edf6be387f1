# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The step as the authors' code takes it, from the same weights."""

from collections.abc import Callable

import torch
from mmengine.model import Sequential
from mmpretrain.models.utils.attention import (
    scaled_dot_product_attention_pyimpl,
)
from torch import Tensor
from torch.nn import functional as F

from _benchmark_objective import KAPPA, straightforward
from _step import TrainingStep
from mmmoca.engine.hooks.codebook_hook import pick_new_words
from mmmoca.models.masking import Mask
from mmmoca.models.vit import EncodedTokens

__all__ = ['ATTENTIONS', 'ReferenceStep']

# What timm's blocks call since version 0.9, and what they did before.
ATTENTIONS: dict[str, Callable] = dict(
    fused=F.scaled_dot_product_attention,
    products=scaled_dot_product_attention_pyimpl,
)


class ReferenceStep(TrainingStep):
    """A step without any of this package's optimisations.

    The teacher sees one view after the other. All patches are embedded, and
    the visible ones gathered, in every round. Targets and L_LOC are those of
    `_benchmark_objective.straightforward`. Autocast covers the losses.
    The optimiser is PyTorch's AdamW by default, the EMA a loop, and the
    losses are read in every step. Transformer layers are our own but for the
    activations, which they keep.

    Args:
        *args: Arguments of :class:`TrainingStep`.
        attention (str): A key of ``ATTENTIONS``. Defaults to 'fused'.
        **kwargs: Arguments of :class:`TrainingStep`.
    """

    def __init__(self, *args, attention: str = 'fused', **kwargs) -> None:
        super().__init__(*args, **kwargs)
        model = self.model
        for part in (model.backbone, model.teacher, model.neck):
            for layer in part.layers:
                layer.attn.scaled_dot_product_attention = ATTENTIONS[attention]
                layer.ffn.layers.__class__ = Sequential  # keeps everything
        groups = [
            {k: group[k] for k in ('params', 'lr', 'weight_decay')}
            for group in self.wrapper.param_groups
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999))
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.dtype == torch.float16
        )
        # Its loader's workers normalise the views.
        self.views = model.data_preprocessor(self.batch, True)['inputs']

    def run(self) -> dict[str, float]:
        """Do one whole step; the losses."""
        precision = torch.autocast(
            self.device.type, self.dtype, enabled=self.dtype != torch.float32
        )
        with precision:
            losses = self.losses()
            loss = losses['loss_img'] + losses['loss_loc']
        values = {name: value.item() for name, value in losses.items()}
        values['loss'] = loss.item()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.move_teacher(0.99)
        return values

    def losses(self) -> dict[str, Tensor]:
        """Both losses as they are weighted; the codebook moves."""
        model, codebook = self.model, self.model.codebook
        words = codebook.words.clone()
        with torch.no_grad():
            tokens = [
                model.teacher.encode(view).patches for view in self.views
            ]
        masks = model.masking.draw(2 * self.batch_size, self.device)
        images = torch.cat(self.views)
        rounds = [self.encode(images, mask) for mask in masks]
        prototypes = model.head.generate_prototypes(words)
        decoded = [
            self.decode(encoded, mask) for encoded, mask in zip(rounds, masks)
        ]
        loss_loc, bags, msds = straightforward(
            dict(
                tokens=torch.cat(tokens),
                words=words,
                sharpness=codebook.sharpness,
                inner=codebook.inner,
                masks=masks,
                prototypes=prototypes.loc,
                features=decoded,
            )
        )
        opposite = torch.cat(bags[::-1])
        loss_img = torch.stack(
            [
                F.kl_div(
                    F.log_softmax(KAPPA * x.avg @ prototypes.img.T, dim=1),
                    opposite,
                    reduction='batchmean',
                )
                for x in rounds
            ]
        ).mean()
        candidates = codebook.draw_candidates(torch.cat(tokens))
        codebook.update_msd(torch.stack(msds))
        codebook.enqueue(
            pick_new_words(
                [candidates],
                [self.batch_size],
                codebook.num_new_words,
                self.generator,
            )
        )
        weight = model.head.lambda_img
        return dict(
            loss_img=2 * weight * loss_img,
            loss_loc=2 * (1 - weight) * loss_loc,
        )

    def encode(self, images: Tensor, mask: Mask) -> EncodedTokens:
        """Student tokens of the visible patches, all having been embedded."""
        student = self.model.backbone
        x = student.patch_embed(images)[0] + student.pos_embed[:, 1:]
        x = x.gather(1, mask.visible[..., None].repeat(1, 1, x.shape[2]))
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
    def move_teacher(self, momentum: float) -> None:
        """EMA of one parameter after the other."""
        for target, source in zip(
            self.model.teacher.parameters(), self.model.backbone.parameters()
        ):
            if source.requires_grad:
                target.data = momentum * target + (1 - momentum) * source
