# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import re
from collections.abc import Iterator

from torch import nn

from mmmoca.registry import MODELS

from .feature_pyramid import ViTFeaturePyramid, check_patch_size

__all__ = ['detector']

HEADS = ('bbox_head', 'mask_head')
ANCHORS = 'anchor_generator.strides'
EXTRACTOR = re.compile(r'roi_head\.(bbox|mask)_roi_extractor')


# A function, because a class would have to inherit from mmdet's: whoever
# pretrains needs neither mmdet nor its compiled operators.
@MODELS.register_module(name=['CheckedDetector', 'detector'])
def detector(detector: str, num_classes: int, **model) -> nn.Module:
    """Build a detector of mmdet whose parts agree.

    Registered as ``mmmoca.CheckedDetector``, and as ``mmmoca.detector`` for
    older configs. In mmdet's own configs each head states the number of
    classes, four times in a Cascade Mask R-CNN; here it follows from one key.
    A :class:`~mmmoca.models.ViTFeaturePyramid` in the neck learns the patch
    size from the backbone, and heads must count on the strides that it makes.

    Args:
        detector (str): What mmdet's config has as the model's ``type``, such
            as 'CascadeRCNN', 'MaskRCNN' or 'RetinaNet'.
        num_classes (int): Number of classes, written into every box and mask
            head.
        **model: The rest of mmdet's config of the model.

    Returns:
        nn.Module: The detector, an object of mmdet's class.

    Raises:
        ValueError: If a pyramid counts on another patch than the backbone's,
            or anchors or regions on other strides than the pyramid's.
    """
    from mmdet.registry import MODELS as MMDET_MODELS

    if 'roi_head' in model:
        model['roi_head'] = _with_classes(model['roi_head'], num_classes)
    model = _with_patch_size(_with_classes(model, num_classes))
    built = MMDET_MODELS.build(dict(model, type=detector, _scope_='mmdet'))
    check_patch_size(built)
    _check_strides(built)
    return built


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


def _check_strides(model: nn.Module) -> None:
    """Compare the strides that heads count on with the pyramid's."""
    necks = list(model.neck.modules()) if model.with_neck else []
    pyramids = [neck for neck in necks if isinstance(neck, ViTFeaturePyramid)]
    if not pyramids:
        return
    first = max(getattr(neck, 'start_level', 0) for neck in necks)
    made = [float(stride) for stride in pyramids[0].strides[first:]]
    advice = {}
    for key, found in _strides_of_heads(model):
        # What a neck adds to the maps has twice the stride of the one before.
        made += [2.0 ** (n + 1) * made[-1] for n in range(len(found))]
        wanted = made[: len(found)]
        if found != wanted:
            advice[key] = f'model.{key}={wanted}'
    if advice:
        raise ValueError(
            'heads count on maps of other strides than ViTFeaturePyramid '
            f'makes: write {" and ".join(advice.values())}'
        )


def _strides_of_heads(model: nn.Module) -> Iterator[tuple[str, list[float]]]:
    """Keys of mmdet's config that hold strides, and what is built of them."""
    for name in ('rpn_head', 'bbox_head'):
        head = getattr(model, name, None)
        if hasattr(head, 'prior_generator'):
            own = 'strides' if hasattr(head, 'strides') else ANCHORS
            strides = head.prior_generator.strides  # (w, h) of each map
            yield f'{name}.{own}', [float(stride[0]) for stride in strides]
    for name, module in model.named_modules():
        extractor = EXTRACTOR.match(name)  # one, or one for each stage
        if extractor and hasattr(module, 'featmap_strides'):
            strides = [float(stride) for stride in module.featmap_strides]
            yield f'{extractor[0]}.featmap_strides', strides
