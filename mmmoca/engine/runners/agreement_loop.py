# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A loop for validation without labels."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.loaders import check_loader
from mmmoca.evaluation.metrics import NeighbourAgreement
from mmmoca.evaluation.protocols.agreement import (
    nearest_of,
    neighbour_agreement,
)
from mmmoca.registry import LOOPS

from .baselines_hook import BaselinesHook, Judgement
from .feature_loop import FeatureLoop


@LOOPS.register_module()
class NeighbourAgreementValLoop(FeatureLoop):
    """Validates without labels, by the agreement of neighbours.

    Two views of an image should have the same neighbours. The loop encodes
    both views of each image and compares their nearest images, see
    :func:`~mmmoca.evaluation.protocols.agreement.neighbour_agreement`. Each
    data sample gets ``agreement`` for :class:`NeighbourAgreement`.

    Args:
        *args: See :class:`FeatureLoop`. The loader yields two views of each
            image, the same ones in each pass. Its config may be from
            :func:`~mmmoca.engine.views.views_loader`.
        k (int): Number of neighbours. It is reduced to a tenth of the number
            of images if it is larger. Defaults to 10.
        baselines (bool): Whether to measure two baselines (the initial encoder
            and raw pixels) before the first training step, and to log the gain
            at the end of training. Defaults to False.
        **kwargs: See :class:`FeatureLoop`.

    Raises:
        ValueError: If k is below 1, if the loader never ends, or if there are
            fewer than three images.
    """

    stage = 'val'
    with_label = False
    of_training = True
    judgements = (
        Judgement(
            'agreement/neighbours',
            'agreement/{}',
            'agreement of neighbours',
            margin=2.0,
        ),
    )

    def __init__(
        self, *args, k: int = 10, baselines: bool = False, **kwargs
    ) -> None:
        super().__init__(*args, **kwargs)
        if k < 1:
            raise ValueError(f'k must be 1 or more, but got {k}')
        check_loader(self.dataloader, self.stage, with_label=False)
        if self.measures_only(NeighbourAgreement):
            self.metric_names = [j.metric for j in self.judgements]
        self.k = k
        number = len(self.dataloader.dataset)
        k = nearest_of(number, k)
        title = f'agreement of neighbours ({number} images, k = {k})'
        self.judgements = [j._replace(title=title) for j in self.judgements]
        if baselines:
            self.runner.register_hook(BaselinesHook(self))

    def samples(self, encode: Callable | None) -> Iterable[list[dict]]:
        """Compare the neighbours of both views; see :meth:`extract`."""
        shard = self.extract(self.dataloader, self.stage, encode)
        return [neighbour_agreement(shard, self.k)]

    def extract(
        self,
        loader: DataLoader,
        role: str,
        encode: Callable[[Tensor], Tensor] | None = None,
    ) -> FeatureShard:
        """Extract the features of both views, concatenated to (n, 2 * D)."""
        encode = encode or self.encode
        return super().extract(
            loader,
            role,
            lambda views: torch.cat([*map(encode, views)], dim=1),
        )

    def scale(self, feats: Tensor) -> Tensor:
        """Scale the features of each view to unit length."""
        return F.normalize(feats.unflatten(1, (2, -1)), dim=2).flatten(1)
