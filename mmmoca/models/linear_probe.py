# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmpretrain.models.classifiers import ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor

from mmmoca.registry import MODELS

from .token_features import TokenFeatures


@MODELS.register_module()
class LinearProbe(ImageClassifier):
    """Linear classifiers with different learning rates on a frozen backbone.

    iBOT's protocol, which the paper follows (appendix, "Linear ImageNet
    classification"): one classifier for each learning rate, all trained on
    the same augmented images. The result is the accuracy of the classifier
    that is best on the validation images.
    :class:`~mmmoca.evaluation.LinearProbeAccuracy` finds this classifier, and
    :class:`~mmmoca.engine.WinningHeadHook` saves it as an ordinary mmpretrain
    classifier.

    Backbone and neck are frozen: they get no gradient and stay in evaluation
    mode.

    Args:
        backbone (dict): Config of a backbone of mmpretrain.
        head (dict): Config of :class:`BatchedLinearHead` or
            :class:`AttentiveHead`. ``in_channels`` defaults to the width of
            the features.
        neck (dict, optional): Config of a neck that turns the backbone's
            outputs into one vector: mmpretrain's ``GlobalAveragePooling`` of
            patch tokens gives [AVG]; :class:`TokenFeatures` concatenates
            several tokens. Defaults to None: the features are the backbone's
            last output, such as [CLS].
        data_preprocessor (dict, optional): See :class:`ImageClassifier`.
        init_cfg (dict, optional): See :class:`ImageClassifier`.

    Raises:
        ValueError: If :class:`TokenFeatures` reads earlier blocks but the
            backbone has no final norm.
    """

    def __init__(
        self,
        backbone: dict,
        head: dict,
        neck: dict | None = None,
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(
            backbone,
            neck,
            data_preprocessor=data_preprocessor,
            init_cfg=init_cfg,
        )
        tokens = 1
        if isinstance(self.neck, TokenFeatures):
            tokens = self.neck.num_tokens
            if self.neck.norm is not None:
                if not getattr(self.backbone, 'final_norm', False):
                    raise ValueError(
                        'TokenFeatures of several blocks applies the final '
                        'norm of the backbone: set final_norm=True there'
                    )
                # Shared, so that the backbone's checkpoint also loads this
                # norm.
                self.neck.norm = self.backbone.ln1
        width = tokens * self.backbone.embed_dims
        self.head = MODELS.build(dict(in_channels=width) | head)
        for module in self._frozen():
            module.requires_grad_(False)

    def train(self, mode: bool = True) -> 'LinearProbe':
        """Set the training mode of the head only."""
        super().train(mode)
        for module in self._frozen():
            module.eval()
        return self

    def parse_losses(self, losses: dict) -> tuple[Tensor, dict]:
        """Log the best classifier's loss, not the sum over all classifiers.

        Args:
            losses (dict[str, Tensor]): The result of :meth:`loss`.

        Returns:
            tuple[Tensor, dict[str, Tensor]]: The sum of the losses, a scalar,
            and the values to log.
        """
        total, log = super().parse_losses(losses)
        best = log['best_cross_entropy']
        # A sum that is not finite is logged instead, so that the hook that
        # checks the logged loss stops the run.
        log['loss'] = torch.where(total.isfinite(), best, total)
        return total, log

    @torch.no_grad()
    def extract_feat(self, inputs: Tensor) -> Tensor:
        """Extract frozen features.

        Args:
            inputs (Tensor): Images, (B, C, H, W).

        Returns:
            Tensor: (B, D), or a map (B, D, h, w) for :class:`AttentiveHead`.
        """
        return super().extract_feat(inputs)[-1]

    def loss(
        self, inputs: Tensor, data_samples: list[DataSample]
    ) -> dict[str, Tensor]:
        """Compute the losses of :meth:`BatchedLinearHead.loss`.

        Args:
            inputs (Tensor): Images, (B, C, H, W).
            data_samples (list[DataSample]): With ``gt_label``, (1, ) each.

        Returns:
            dict[str, Tensor]: ``loss`` and ``best_cross_entropy``.
        """
        return self.head.loss(self.extract_feat(inputs), _labels(data_samples))

    @torch.no_grad()
    def predict(
        self, inputs: Tensor, data_samples: list[DataSample]
    ) -> list[DataSample]:
        """Rank the true class in every classifier's scores.

        Args:
            inputs (Tensor): Images, (B, C, H, W).
            data_samples (list[DataSample]): With ``gt_label``, (1, ) each.

        Returns:
            list[DataSample]: The samples. Each now has ``label_places``,
            int64, one number for each classifier (see
            :meth:`BatchedLinearHead.places`), and the head's ``base_lrs`` and
            ``num_classes``.
        """
        places = self.head.places(
            self.extract_feat(inputs), _labels(data_samples)
        ).cpu()
        for sample, place in zip(data_samples, places):
            sample.set_field(place, 'label_places')
            for name in ('base_lrs', 'num_classes'):
                sample.set_field(
                    getattr(self.head, name), name, field_type='metainfo'
                )
        return data_samples

    def _frozen(self) -> list[torch.nn.Module]:
        parts = (self.backbone, self.neck)
        return [part for part in parts if part is not None]


def _labels(data_samples: list[DataSample]) -> Tensor:
    """Collect the class indices of the samples, int64, (B, ).

    Raises:
        ValueError: If a sample does not have exactly one label.
    """
    labels = [sample.gt_label for sample in data_samples]
    if any(label.numel() != 1 for label in labels):
        raise ValueError(
            'a linear probe needs exactly one label for each image, but some '
            'images have several or none'
        )
    return torch.cat(labels)
