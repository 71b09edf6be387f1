# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from typing import Any

from mmpretrain.models import ImageToImageRetriever
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.registry import MODELS

__all__ = ['BackboneRetriever']


@MODELS.register_module()
class BackboneRetriever(ImageToImageRetriever):
    """Finds similar images by the features of a pretrained backbone.

    For mmpretrain's ``ImageRetrievalInferencer``. It fills the model from a
    checkpoint, in which mmpretrain's retriever looks for ``image_encoder.*``;
    this one takes a pretraining run or the authors' file, of which it loads
    the teacher, and any ``backbone.*``, as ``mmmoca-teacher://FILE`` gives.

    Args:
        backbone (dict): The encoder.
        neck (dict, optional): What makes a vector of its output.
        prototype (str | dict): The images to search. Defaults to '': the
            inferencer has its own argument for them.
        **kwargs (Any): See :class:`ImageToImageRetriever`.

    Raises:
        ValueError: When a checkpoint is loaded that has neither encoder.
    """

    def __init__(
        self,
        backbone: dict,
        neck: dict | None = None,
        prototype: str | dict = '',
        **kwargs: Any,
    ) -> None:
        encoder = dict(
            type='mmpretrain.ImageClassifier', backbone=backbone, neck=neck
        )
        # By name, mmpretrain's function takes D numbers for each pair.
        kwargs.setdefault('similarity_fn', _cosine)
        super().__init__(MODELS.build(encoder), prototype, **kwargs)
        self.register_load_state_dict_pre_hook(_rename_encoder)


def _cosine(queries: Tensor, images: Tensor) -> Tensor:
    """Similarity of each pair: (N, D), (M, D) -> (N, M)."""
    return F.normalize(queries) @ F.normalize(images).T


def _rename_encoder(
    module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any
) -> None:
    """Leave of a checkpoint its encoder, under the names of the module."""
    target = f'{prefix}image_encoder.backbone.'
    for role in ('image_encoder.backbone', 'teacher', 'backbone'):
        source = f'{prefix}{role}.'
        if f'{source}cls_token' in state:
            break
    else:
        raise ValueError(
            'the checkpoint has neither teacher.* nor backbone.*: write '
            'mmmoca-teacher://FILE, which reads files of other layouts'
        )
    encoder = {
        name.replace(source, target, 1): value
        for name, value in state.items()
        if name.startswith(source)
    }
    state.clear()
    state.update(encoder)
