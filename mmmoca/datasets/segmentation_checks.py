# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether a segmentor's config fits the data sets of mmsegmentation.

What can be wrong with their files is in :mod:`.mask_checks`.
"""

from collections.abc import Iterator

from mmengine.dataset import BaseDataset
from mmengine.utils import to_2tuple
from torch import nn
from torch.utils.data import Dataset

from mmmoca.messages import shown

__all__ = [
    'SegDataError',
    'check_channels',
    'check_classes',
    'check_crops',
    'members',
]


class SegDataError(ValueError):
    """The data set or the config does not fit its purpose.

    Args:
        message (str): Names of others in it are shown, see :func:`shown`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


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


def check_crops(model: nn.Module, dataset: BaseDataset) -> None:
    """Check that crops and windows are whole patches, and agree.

    Args:
        model (nn.Module): The segmentor. Without a ``patch_embed`` in its
            backbone there is nothing to check.
        dataset (BaseDataset): Its pipeline's random crop is looked at.

    Raises:
        SegDataError: If a size is not a multiple of the patch (the backbone
            would pad it), or training crops would be padded.
    """
    patch_embed = getattr(model.backbone, 'patch_embed', None)
    if patch_embed is None:
        return
    patch = to_2tuple(patch_embed.projection.kernel_size)
    crops = [
        to_2tuple(transform.crop_size)
        for transform in dataset.pipeline.transforms
        if type(transform).__name__ == 'RandomCrop'
    ]
    padded = getattr(model.data_preprocessor, 'size', None)
    window = (model.test_cfg or {}).get('crop_size')
    sizes = [('crop_size of RandomCrop', crop) for crop in crops]
    sizes += [
        ('model.data_preprocessor.size', padded),
        ('model.test_cfg.crop_size', window),
    ]
    for name, size in sizes:
        if size is None:
            continue
        size = to_2tuple(size)
        if any(side % step for side, step in zip(size, patch)):
            near = tuple(
                max(1, round(side / step)) * step
                for side, step in zip(size, patch)
            )
            raise SegDataError(
                f'{name} is {tuple(size)}, not a multiple of the patch '
                f'{patch}: write {near}, in the pipeline, in model.'
                'data_preprocessor.size, model.backbone.img_size and model.'
                'test_cfg.crop_size alike'
            )
    if crops and padded is not None and crops[-1] != to_2tuple(padded):
        raise SegDataError(
            f'RandomCrop cuts {crops[-1]}, but model.data_preprocessor.size '
            f'is {to_2tuple(padded)}: write the same for both'
        )


def check_channels(model: nn.Module) -> None:
    """Check that the images are normalised for the channels of the backbone.

    Args:
        model (nn.Module): The segmentor. Without a ``patch_embed`` in its
            backbone there is nothing to check.

    Raises:
        SegDataError: If ``mean`` has another length than ``in_channels``.
    """
    patch_embed = getattr(model.backbone, 'patch_embed', None)
    mean = getattr(model.data_preprocessor, 'mean', None)
    if patch_embed is None or mean is None:
        return
    channels = patch_embed.projection.in_channels
    if mean.numel() not in (1, channels):
        raise SegDataError(
            f'model.backbone.in_channels is {channels}, but model.'
            f'data_preprocessor.mean has {mean.numel()} numbers: write a mean '
            f'and std of {channels} numbers, and for other than 1 or 3 '
            "type='mmmoca.SegBandsPreprocessor'"
        )


def check_classes(model: nn.Module, dataset: BaseDataset) -> None:
    """Check that the heads have as many classes as the data set.

    Args:
        model (nn.Module): The segmentor.
        dataset (BaseDataset): The data set.

    Raises:
        SegDataError: If they differ.
    """
    classes = dataset.metainfo.get('classes')
    if classes is None:
        raise SegDataError(
            f'the data set {dataset.data_root} has no classes: write '
            "metainfo=dict(classes=('background', ...)) in its config"
        )
    for name in ('decode_head', 'auxiliary_head'):
        heads = getattr(model, name, None)
        heads = heads if isinstance(heads, nn.ModuleList) else [heads]
        for head in heads:
            count = getattr(head, 'num_classes', len(classes))
            if count != len(classes):
                raise SegDataError(
                    f'the data set has {len(classes)} classes '
                    f'({", ".join(classes[:3])}, ...), but {name} has '
                    f'{count}: write model.{name}.num_classes={len(classes)}'
                )
