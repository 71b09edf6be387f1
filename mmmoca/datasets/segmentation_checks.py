# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether a segmentor's config fits the data sets of mmsegmentation.

What can be wrong with their files is in :mod:`.mask_checks`.
"""

from collections.abc import Iterator

from mmengine.dataset import BaseDataset
from mmengine.utils import to_2tuple
from torch.utils.data import Dataset

from mmmoca.messages import printable

__all__ = [
    'SegDataError',
    'check_classes',
    'check_crops',
    'members',
]


class SegDataError(ValueError):
    """The data set or the config does not fit its purpose.

    Args:
        message (str): Names of others in it are shown, see :func:`printable`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def members(dataset: Dataset) -> Iterator[BaseDataset]:
    """The data sets that a repeated or concatenated one consists of.

    Args:
        dataset (Dataset): A data set, or MMEngine's wrapper of one or more.

    Yields:
        BaseDataset: Each data set that reads files.
    """
    if hasattr(dataset, 'datasets'):
        for part in dataset.datasets:
            yield from members(part)
    elif hasattr(dataset, 'dataset'):
        yield from members(dataset.dataset)
    else:
        yield dataset


def check_crops(model: dict, dataset: BaseDataset) -> None:
    """Check that crops and windows are whole patches, and agree.

    Args:
        model (dict): Config of the segmentor. Where its backbone has no
            ``patch_size`` there is nothing to check.
        dataset (BaseDataset): Its pipeline's random crop is looked at.

    Raises:
        SegDataError: If a size is not a multiple of the patch (the backbone
            would pad it), or training crops would be padded.
    """
    if 'patch_size' not in model['backbone']:
        return
    patch = to_2tuple(model['backbone']['patch_size'])
    sizes = [
        ('RandomCrop.crop_size', transform.crop_size)
        for transform in dataset.pipeline.transforms
        if type(transform).__name__ == 'RandomCrop'
    ]
    for part, key in (
        ('data_preprocessor', 'size'),
        ('test_cfg', 'crop_size'),
    ):
        size = (model.get(part) or {}).get(key)
        if size is not None:
            sizes.append((f'model.{part}.{key}', size))
    for name, size in sizes:
        size = to_2tuple(size)
        if any(side % step for side, step in zip(size, patch)):
            near = tuple(
                max(1, round(side / step)) * step
                for side, step in zip(size, patch)
            )
            raise SegDataError(
                f'{name} is {size}, not a multiple of the patch {patch}: '
                f'write {near}, for the crops of the pipeline, model.'
                'data_preprocessor, backbone.img_size and test_cfg alike'
            )
    training = [to_2tuple(size) for name, size in sizes if 'test' not in name]
    if len(training) > 1 and training[0] != training[1]:
        raise SegDataError(
            f'RandomCrop.crop_size is {training[0]}, but model.'
            f'data_preprocessor.size is {training[1]}: write the same'
        )


def check_classes(model: dict, dataset: BaseDataset) -> None:
    """Check that the heads have as many classes as the data set.

    Args:
        model (dict): Config of the segmentor.
        dataset (BaseDataset): The data set.

    Raises:
        SegDataError: If they differ.
    """
    found = len(dataset.metainfo.get('classes') or ())
    for name in ('decode_head', 'auxiliary_head'):
        heads = model.get(name) or []
        for head in [heads] if isinstance(heads, dict) else heads:
            if head.get('num_classes', found) != found:
                raise SegDataError(
                    f'the data set {dataset.data_root} has {found} classes: '
                    f'write model.{name}.num_classes={found}, or its classes '
                    "in metainfo=dict(classes=('background', ...))"
                )
