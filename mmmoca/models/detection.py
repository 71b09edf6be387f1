# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import copy
from collections.abc import Iterator

from torch import nn

from mmmoca.registry import MODELS

from .feature_pyramid import ViTFeaturePyramid

HEADS = ('bbox_head', 'mask_head')


# This is a function because a class would inherit from mmdet's class, and
# pretraining must run without mmdet.
@MODELS.register_module(name='CheckedDetector')
def detector(detector: str, num_classes: int, **model) -> nn.Module:
    """Build an mmdet detector whose config states the number of classes once.

    Registered as ``mmmoca.CheckedDetector``. In mmdet's own configs every head
    repeats the number of classes; a Cascade Mask R-CNN has four heads. A
    :class:`~mmmoca.models.ViTFeaturePyramid` in the neck gets the patch size
    of the backbone, unless its config states one.

    Args:
        detector (str): The model's ``type`` in mmdet's config, such as
            'CascadeRCNN', 'MaskRCNN' or 'RetinaNet'.
        num_classes (int): Number of classes, written into every box and mask
            head.
        **model: The rest of mmdet's config of the model.

    Returns:
        nn.Module: The detector, an object of mmdet's class.
    """
    from mmdet.registry import MODELS as MMDET_MODELS

    model = copy.deepcopy(model)
    roi_head = model.get('roi_head') or {}
    for head in (*_parts(model, *HEADS), *_parts(roi_head, *HEADS)):
        head['num_classes'] = num_classes
    if size := model['backbone'].get('patch_size'):
        for neck in _parts(model, 'neck'):
            if str(neck['type']).endswith(ViTFeaturePyramid.__name__):
                neck.setdefault('patch_size', size)
    return MMDET_MODELS.build(dict(model, type=detector, _scope_='mmdet'))


def _parts(parent: dict, *names: str) -> Iterator[dict]:
    """Yield the configs under some keys; a key has one config or a list."""
    for name in names:
        part = parent.get(name) or []
        yield from part if isinstance(part, (list, tuple)) else [part]
