# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.dataset import BaseDataset

from mmmoca.registry import DATASETS

from .segmentation_checks import SegDataError

__all__ = ['mask_folder']


# A function, because a class would have to inherit from mmseg's: whoever
# pretrains needs no mmseg.
@DATASETS.register_module(name=['MaskFolder', 'mask_folder'])
def mask_folder(**dataset) -> BaseDataset:
    """Build mmseg's ``BaseSegDataset`` of folders of images and masks.

    Registered as ``mmmoca.MaskFolder``, and as ``mmmoca.mask_folder`` for
    older configs. mmseg fails on a folder without an image in words of NumPy.

    Args:
        **dataset: Arguments of ``BaseSegDataset``.

    Returns:
        BaseDataset: The data set.

    Raises:
        SegDataError: If there is no image.
    """
    from mmseg.datasets import BaseSegDataset

    built = BaseSegDataset(**dataset | dict(lazy_init=True))
    if not built.load_data_list():
        raise SegDataError(
            f'there is no image *{built.img_suffix} in '
            f'{built.data_prefix["img_path"]}: correct data_root, '
            'data_prefix or img_suffix'
        )
    if not dataset.get('lazy_init'):
        built.full_init()
    return built
