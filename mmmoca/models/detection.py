# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from torch import nn

from mmmoca.registry import MODELS

from .feature_pyramid import ViTFeaturePyramid

__all__ = ['detector']

HEADS = ('bbox_head', 'mask_head')


# A function, since a class would inherit from mmdet's, and pretraining must
# not need mmdet.
@MODELS.register_module(name=['CheckedDetector', 'detector'])
def detector(detector: str, num_classes: int, **model) -> nn.Module:
    """Build a detector of mmdet from one number of classes.

    Registered as ``mmmoca.CheckedDetector``, and as ``mmmoca.detector`` for
    older configs. In mmdet's configs each head repeats the number of classes,
    four times in a Cascade Mask R-CNN. A
    :class:`~mmmoca.models.ViTFeaturePyramid` in the neck gets the patch size
    of the backbone.

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

    if 'roi_head' in model:
        model['roi_head'] = _with_classes(model['roi_head'], num_classes)
    model = _with_patch_size(_with_classes(model, num_classes))
    return MMDET_MODELS.build(dict(model, type=detector, _scope_='mmdet'))


def _with_classes(parent: dict, num_classes: int) -> dict:
    """Copy a config and set the number of classes of its heads."""
    heads = {}
    for name in HEADS:
        head = parent.get(name)
        if isinstance(head, (list, tuple)):
            heads[name] = [dict(h, num_classes=num_classes) for h in head]
        elif head is not None:
            heads[name] = dict(head, num_classes=num_classes)
    return dict(parent, **heads)


def _with_patch_size(model: dict) -> dict:
    """Copy a config and give its pyramid the backbone's patch size."""
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
