# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from torch import nn

from mmmoca.registry import MODELS

from .feature_pyramid import ViTFeaturePyramid

__all__ = ['detector']

HEADS = ('bbox_head', 'mask_head')


# A function, because a class would have to inherit from mmdet's: whoever
# pretrains needs neither mmdet nor its compiled operators.
@MODELS.register_module(name=['CheckedDetector', 'detector'])
def detector(detector: str, num_classes: int, **model) -> nn.Module:
    """Build a detector of mmdet from one number of classes.

    Registered as ``mmmoca.CheckedDetector``, and as ``mmmoca.detector`` for
    older configs. In mmdet's own configs each head states the number of
    classes, four times in a Cascade Mask R-CNN; here it follows from one key.
    A :class:`~mmmoca.models.ViTFeaturePyramid` in the neck learns the patch
    size from the backbone.

    Args:
        detector (str): What mmdet's config has as the model's ``type``, such
            as 'CascadeRCNN', 'MaskRCNN' or 'RetinaNet'.
        num_classes (int): Number of classes, written into every box and mask
            head.
        **model: The rest of mmdet's config of the model.

    Returns:
        nn.Module: The detector, an object of mmdet's class.
    """
    from mmdet.registry import MODELS as MMDET_MODELS

    if 'roi_head' in model:
        model['roi_head'] = _with_classes(model['roi_head'], num_classes)
    model = _with_patch_size(_with_classes(model, num_classes))
    return MMDET_MODELS.build(dict(model, type=detector, _scope_='mmdet'))


def _with_classes(parent: dict, num_classes: int) -> dict:
    """Copy of a config whose heads have this number of classes."""
    heads = {}
    for name in HEADS:
        head = parent.get(name)
        if isinstance(head, (list, tuple)):
            heads[name] = [dict(h, num_classes=num_classes) for h in head]
        elif head is not None:
            heads[name] = dict(head, num_classes=num_classes)
    return dict(parent, **heads)


def _with_patch_size(model: dict) -> dict:
    """Copy of a config whose pyramid has the backbone's patch size."""
    size, neck = model['backbone'].get('patch_size'), model.get('neck')
    if size is None or neck is None:
        return model
    parts = [
        dict(patch_size=size) | part
        if str(part['type']).endswith(ViTFeaturePyramid.__name__)
        else part
        for part in (neck if isinstance(neck, (list, tuple)) else [neck])
    ]
    return dict(model, neck=parts)
