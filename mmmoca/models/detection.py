# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from torch import nn

from mmmoca.registry import MODELS

__all__ = ['detector']

HEADS = ('bbox_head', 'mask_head')


# A function, because a class would have to inherit from mmdet's: whoever
# pretrains needs neither mmdet nor its compiled operators.
@MODELS.register_module()
def detector(detector: str, num_classes: int, **model) -> nn.Module:
    """Build a detector of mmdet whose heads all have the same classes.

    In mmdet's own configs each head states the number of classes, four times
    in a Cascade Mask R-CNN; here it follows from one key.

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
    model = _with_classes(model, num_classes)
    return MMDET_MODELS.build(dict(model, type=detector, _scope_='mmdet'))


def _with_classes(parent: dict, num_classes: int) -> dict:
    """Copy of a config whose heads have this number of classes."""
    parent = parent.copy()
    for name in HEADS:
        heads = parent.get(name)
        if isinstance(heads, (list, tuple)):
            parent[name] = [
                dict(head, num_classes=num_classes) for head in heads
            ]
        elif heads is not None:
            parent[name] = dict(heads, num_classes=num_classes)
    return parent
