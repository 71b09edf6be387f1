# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import copy
from collections.abc import Sequence

import torch
from mmpretrain.models.selfsup import BaseSelfSupervisor
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from mmmoca.registry import MODELS, TASK_UTILS

from .codebook import CodebookUpdate
from .masking import Mask, check_masks
from .vit import EncodedTokens, MOCAViT


@MODELS.register_module()
class MOCA(BaseSelfSupervisor):
    """Masked Online Codebook Assignments.

    Implementation of `MOCA: Self-supervised Representation Learning by
    Predicting Masked Online Codebook Assignments
    <https://arxiv.org/abs/2307.09361>`_.

    The teacher sees two whole views and assigns their patches to the words of
    an online codebook. The student sees masked views. It predicts the mean
    assignment of the opposite view (L_IMG) and, through a bottleneck, the
    assignments of single patches of its own view (L_LOC).

    :meth:`loss` changes no state. :class:`~mmmoca.engine.CodebookHook` and
    :class:`~mmmoca.engine.TeacherEMAHook` must be among the hooks: they update
    the codebook and the teacher after each optimiser step.

    ``codebook``, ``neck`` and ``head`` take widths and the patch grid from the
    backbone unless their configs state them.

    Args:
        backbone (dict): The student, a :class:`MOCAViT`.
        codebook (dict): Config of :class:`OnlineCodebook`.
        head (dict): Config of :class:`AssignmentHead`.
        neck (dict, optional): Config of :class:`CondenserNeck`. It is None
            if and only if ``lambda_img`` of the head is 1.
        masking (dict, optional): Config of :class:`MaskingPlan` (the default
            type) or of another class in TASK_UTILS with a method ``draw`` of
            the same signature.
        image_embedding (str): 'avg' (default), the mean visible patch token,
            or 'cls' (paper, Table 2d).
        data_preprocessor (dict, optional): Defaults to a
            :class:`ViewsDataPreprocessor` without normalisation.
        init_cfg (dict, optional): See :class:`BaseSelfSupervisor`.
        half_teacher (bool): Whether the teacher has ``half_residuals`` (see
            :class:`MOCAViT`) even if the student does not. Defaults to False.

    Raises:
        ValueError: If the parts of the model do not fit together.
    """

    # A config's `compile` compiles each of these methods as a graph.
    passes = 'encode_teacher', 'encode_student', 'head.loss'

    def __init__(
        self,
        backbone: dict,
        codebook: dict,
        head: dict,
        neck: dict | None = None,
        masking: dict | None = None,
        image_embedding: str = 'avg',
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
        half_teacher: bool = False,
    ) -> None:
        if not isinstance(data_preprocessor, nn.Module):
            default = dict(type='mmmoca.ViewsDataPreprocessor')
            data_preprocessor = default | (data_preprocessor or {})
        super().__init__(
            backbone, data_preprocessor=data_preprocessor, init_cfg=init_cfg
        )
        if not isinstance(self.backbone, MOCAViT):
            raise ValueError(
                "MOCA needs a backbone of type 'mmmoca.MOCAViT', got "
                f'{type(self.backbone).__name__}'
            )
        if not self.backbone.final_norm:
            raise ValueError('MOCA needs final_norm=True in its backbone')
        if image_embedding not in ('avg', 'cls'):
            raise ValueError(
                "image_embedding must be 'avg' or 'cls', got "
                f'{image_embedding!r}'
            )
        self._check_channels()
        self.image_embedding = image_embedding
        dims = self.backbone.embed_dims
        grid = self.backbone.patch_resolution
        self.codebook = MODELS.build(
            dict(embed_dims=dims, patch_resolution=grid) | codebook
        )
        if neck is not None:
            self.neck = MODELS.build(
                dict(in_channels=dims, patch_resolution=grid) | neck
            )
            head = dict(decoder_dims=self.neck.embed_dims) | head
            if self.neck.condenser and self.backbone.tap_layer is None:
                raise ValueError(
                    'the condenser reads an intermediate layer: '
                    'set tap_layer in the backbone (8 for 12 layers)'
                )
        self.head = MODELS.build(dict(embed_dims=dims) | head)
        self.head.check_decoder(self.neck if self.with_neck else None)
        plan = dict(type='mmmoca.MaskingPlan', num_patches=grid[0] * grid[1])
        self.masking = TASK_UTILS.build(plan | (masking or {}))
        self.teacher = copy.deepcopy(self.backbone).requires_grad_(False)
        self.teacher.half_residuals |= half_teacher

    def _check_channels(self) -> None:
        mean = getattr(self.data_preprocessor, 'mean', None)
        channels = self.backbone.patch_embed.projection.in_channels
        if mean is not None and mean.numel() not in (1, channels):
            raise ValueError(
                f'model.backbone.in_channels is {channels}, but model.'
                f'data_preprocessor.mean has {mean.numel()} numbers: write a '
                f'mean and std of {channels} numbers, and to_rgb=False unless '
                'the images are BGR'
            )

    def init_weights(self) -> None:
        """Initialise the student, then copy it to the teacher.

        If ``init_cfg`` loads a file that contains a teacher, that teacher is
        kept.
        """
        given = []

        def note(module: nn.Module, state: dict, prefix: str, *_) -> None:
            given.append(bool(prefix) and f'{prefix}cls_token' in state)

        handle = self.teacher.register_load_state_dict_pre_hook(note)
        super().init_weights()
        handle.remove()
        if not any(given):
            self.teacher.load_state_dict(self.backbone.state_dict())

    def train(self, mode: bool = True) -> 'MOCA':
        """Set the training mode. The teacher stays in evaluation mode."""
        super().train(mode)
        self.teacher.eval()
        return self

    def loss(
        self,
        inputs: list[Tensor],
        data_samples: list[DataSample] | None = None,
    ) -> dict[str, object]:
        """Compute the losses of a step (section 3), without side effects.

        Args:
            inputs (list[Tensor]): Two views, (B, C, H, W) each.
            data_samples (list[DataSample], optional): Not used.

        Returns:
            dict[str, object]: ``loss_img`` and ``loss_loc``, KL divergences
            with the weights of equation 1. Two more numbers are for the log:
            ``codebook_perplexity``, the effective number of words that the
            batch uses, and ``image_information``, the mutual information of
            images and words in nats. ``codebook_update`` is for hooks, see
            :class:`CodebookUpdate`.
        """
        views = self._stack_views(inputs)  # 2 x (B, ...) -> (2B, C, H, W)
        tokens = self.encode_teacher(views)  # (2B, L, D)
        targets = self.codebook.assign(tokens, views)
        masks = self.draw_masks(len(views), views.device)
        embeddings, decoded = self.encode_student(views, masks)
        losses, bags, msd = self.head.loss(embeddings, decoded, masks, targets)
        entropy = _entropy(bags.mean(dim=0))
        losses['codebook_perplexity'] = entropy.exp()
        losses['image_information'] = entropy - _entropy(bags).mean()
        losses['codebook_update'] = CodebookUpdate(
            self.codebook.draw_candidates(tokens),
            msd.unflatten(0, (2, -1)).mean(dim=1),
            len(views) // 2,
            self.codebook.mean_token(tokens),
            tokens.mean(dim=1),
        )
        return losses

    def draw_masks(self, num: int, device: torch.device) -> Sequence[Mask]:
        """Draw the masks of all rounds (section 3.4).

        Args:
            num (int): 2B, number of views.
            device (torch.device): Device of the views.

        Returns:
            Sequence[Mask]: One for each round.

        Raises:
            ValueError: See :func:`.masking.check_masks`.
        """
        masks = self.masking.draw(num, device)
        rows, columns = self.backbone.patch_resolution
        name = type(self.masking).__name__
        check_masks(masks, num, rows * columns, name)
        return masks

    @torch.no_grad()
    def encode_teacher(self, views: Tensor) -> Tensor:
        """Encode the whole views with the teacher (section 3.1).

        Args:
            views (Tensor): View 1 and view 2, (2B, C, H, W).

        Returns:
            Tensor: Patch tokens, (2B, L, D).
        """
        return self.teacher.encode(views).patches

    def encode_student(
        self, views: Tensor, masks: Sequence[Mask]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Encode and decode the masked views of all rounds (section 3.3).

        Args:
            views (Tensor): View 1 and view 2, (2B, C, H, W).
            masks (Sequence[Mask]): Patch indices of each round.

        Returns:
            tuple[list[Tensor], list[Tensor]]: The image embeddings of each
            round, (2B, D), and the decoder's tokens of each round, (2B, n, d).
            Without a decoder the second list is empty.
        """
        rounds = [mask.visible for mask in masks]
        encoded = self.backbone.encode_rounds(views, rounds)
        embeddings = [self.embed_image(tokens) for tokens in encoded]
        decoded = []
        if self.with_neck:
            decoded = [
                self.neck(*parts) for parts in zip(encoded, embeddings, masks)
            ]
        return embeddings, decoded

    def embed_image(self, encoded: EncodedTokens) -> Tensor:
        """Return the image embedding of equation 5: [AVG] or [CLS], (N, D)."""
        return getattr(encoded, self.image_embedding)

    def parse_losses(self, losses: dict) -> tuple[Tensor, dict]:
        """Sum the losses and pass the codebook's update to the hooks.

        Args:
            losses (dict): The result of :meth:`loss`.

        Returns:
            tuple[Tensor, dict]: The loss, and the ``outputs`` that hooks
            receive: the scalars to log and ``codebook_update``.
        """
        losses = dict(losses)
        update = losses.pop('codebook_update')
        loss, log_vars = super().parse_losses(losses)
        return loss, log_vars | dict(codebook_update=update)

    @torch.no_grad()
    def extract_feat(self, inputs: Tensor, which: str = 'teacher') -> Tensor:
        """Extract the image embedding after the final norm.

        k-NN uses this feature. It is [AVG] of all patch tokens, or [CLS] if
        ``image_embedding`` is 'cls'.

        Args:
            inputs (Tensor): Whole images, (B, C, H, W).
            which (str): 'teacher' (default, as in the paper's evaluations)
                or 'student'.

        Returns:
            Tensor: Image features, (B, D).
        """
        encoders = dict(teacher=self.teacher, student=self.backbone)
        return self.embed_image(encoders[which].encode(inputs))

    def _stack_views(self, inputs: list[Tensor]) -> Tensor:
        """Check the two views and concatenate them -> (2B, C, H, W)."""
        size = tuple(self.backbone.img_size)
        if len(inputs) != 2 or any(v.shape[-2:] != size for v in inputs):
            shapes = [tuple(view.shape) for view in inputs]
            raise ValueError(
                f'MOCA trains on two views of size {size}, got {shapes}; '
                "set the backbone's img_size to the pipeline's crop and use "
                'MultiView with two views'
            )
        return torch.cat(list(inputs))


def _entropy(distributions: Tensor) -> Tensor:
    """Compute the entropy of distributions in nats, (..., K) -> (...)."""
    return torch.special.entr(distributions).sum(dim=-1)
