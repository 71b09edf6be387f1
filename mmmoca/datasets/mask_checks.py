# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What can be wrong with the images and masks of a segmentation data set.

Data sets are those of mmsegmentation, which is not imported here.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.fileio import get_file_backend
from PIL import Image, UnidentifiedImageError

from mmmoca.files import outside
from mmmoca.messages import listed
from mmmoca.registry import DATASETS

from .band_loading import LoadBands
from .segmentation_checks import (
    SegDataError,
    check_classes,
    check_crops,
    members,
)

__all__ = ['check_files', 'check_masks', 'check_segmentation']

EXIF_ORIENTATION, TRANSPOSED = 0x0112, (5, 6, 7, 8)


def check_segmentation(cfg: Config, stages: Iterable[str]) -> None:
    """Check the data sets that a segmentor is about to read.

    Sizes of crops are compared with the patch, classes of the heads with
    those of the data set; every image and mask has to exist, and 200 masks of
    each data set are read, for their size and label ids.

    Args:
        cfg (Config): The config. One of another ``default_scope`` than
            'mmseg' has nothing to check.
        stages (Iterable[str]): 'train', 'val' or 'test', what is run.

    Raises:
        SegDataError: Says what to write instead.
    """
    for stage in stages if cfg.get('default_scope') == 'mmseg' else ():
        if loader := cfg.get(f'{stage}_dataloader'):
            built = DATASETS.build(dict(loader.dataset, _scope_='mmseg'))
            for dataset in members(built):
                check_crops(cfg.model, dataset)
                check_classes(cfg.model, dataset)
                check_files(dataset)
                check_masks(dataset, 200)


def check_files(dataset: BaseDataset) -> None:
    """Check that each image and each mask exists.

    Args:
        dataset (BaseDataset): The data set.

    Raises:
        SegDataError: Names the first files that are missing.
    """
    if getattr(dataset, 'seg_map_suffix', '').endswith('_labelIds.png'):
        raise SegDataError(
            f'seg_map_suffix is {dataset.seg_map_suffix!r}: labelIds are the '
            'raw ids of Cityscapes, which have holes and exceed the 19 '
            "classes. Write seg_map_suffix='_gtFine_labelTrainIds.png'"
        )
    images, masks = [], []
    for info in _infos(dataset, range(len(dataset))):
        images.append(info['img_path'])
        if 'seg_map_path' in info:
            masks.append(info['seg_map_path'])
    kinds = (
        ('image', 'img_path', images),
        ('mask', 'seg_map_path', masks),
    )
    for kind, key, paths in kinds if dataset.ann_file else ():
        root = dataset.data_prefix.get(key) or ''
        beyond = outside(root, paths)
        if beyond:
            raise SegDataError(
                f'{len(beyond)} {kind}s of the split {dataset.ann_file} lead '
                f'out of {root} ({listed(beyond, 2)}): a line is a path below '
                f'it without {dataset.img_suffix!r}'
            )
    backend = get_file_backend(images[0], backend_args=dataset.backend_args)
    for kind, _, paths in kinds:
        missing = [path for path in paths if not backend.exists(path)]
        if missing:
            raise SegDataError(
                f'{len(missing)} of {len(paths)} {kind}s do not exist, such '
                f'as {", ".join(missing[:2])}. '
                + _advice(dataset, kind, missing[0], backend)
            )


def check_masks(dataset: BaseDataset, num_masks: int | None = None) -> None:
    """Read masks and check their size and label ids.

    Args:
        dataset (BaseDataset): The data set, whose files exist.
        num_masks (int, optional): How many to read, evenly spaced. Defaults
            to None, all.

    Raises:
        SegDataError: If a mask has colours for indices, another size than
            its image, or label ids that are no classes; or if all masks are
            black and white, 0 and 255.
    """
    count = len(dataset)
    number = count if num_masks is None else min(num_masks, count)
    chosen = np.linspace(0, count - 1, number).astype(int)
    num_classes = len(dataset.metainfo['classes'])
    bands = next(
        (t for t in dataset.pipeline.transforms if isinstance(t, LoadBands)),
        None,
    )
    seen = set()
    for info in _infos(dataset, chosen):
        if 'seg_map_path' not in info:
            continue
        path = info['seg_map_path']
        backend = get_file_backend(path, backend_args=dataset.backend_args)
        with backend.get_local_path(path) as local:
            mask = np.asarray(Image.open(local))
        if mask.ndim != 2:
            raise SegDataError(
                f'{path} has {mask.shape[2]} channels: a mask needs one, '
                'with the index of the class of each pixel (a PNG with a '
                'palette is fine)'
            )
        with backend.get_local_path(info['img_path']) as local:
            size = _loaded_size(local, bands)
        if size is not None and size != mask.shape:
            raise SegDataError(
                f'{path} has {mask.shape[0]} x {mask.shape[1]} pixels, but '
                f'its image {info["img_path"]} {size[0]} x {size[1]} (height '
                'x width): a mask needs the size of its image'
            )
        ids = np.unique(mask) if mask.dtype != np.uint8 else _used(mask)
        classes = {int(label): _class_of(int(label), info) for label in ids}
        foreign = [
            label
            for label, index in classes.items()
            if not 0 <= index < num_classes and index != dataset.ignore_index
        ]
        if foreign:
            raise SegDataError(
                f'{path} has the label ids {foreign[:5]}, but there are '
                f'{num_classes} classes: '
                + _expected_ids(dataset, num_classes, path)
            )
        seen |= set(classes)
    if seen == {0, 255} == {0, dataset.ignore_index} and num_classes > 1:
        raise SegDataError(
            f'the masks of {dataset.data_prefix["seg_map_path"]} have only '
            'the values 0 and 255, and 255 is left out of the training: write '
            '1 in the place of 255 where it means the second class'
        )


def _infos(dataset: BaseDataset, indices: Iterable[int]) -> Iterator[dict]:
    return (dataset.get_data_info(int(index)) for index in indices)


def _advice(dataset: BaseDataset, kind: str, path: str, backend) -> str:
    raw = path.replace('_labelTrainIds', '_labelIds')
    if raw != path and backend.exists(raw):
        return (
            'There are only raw _labelIds: make _labelTrainIds of them by '
            f'`pip install cityscapesscripts; CITYSCAPES_DATASET='
            f'{dataset.data_root} csCreateTrainIdLabelImgs`'
        )
    if kind == 'image' and dataset.ann_file:
        return (
            f'They are named by the split {dataset.ann_file}: make it for '
            'this folder (for Cityscapes by tools/dataset_converters/'
            'cityscapes_splits.py); a line is a path below '
            f'{dataset.data_prefix["img_path"]} without '
            f'{dataset.img_suffix!r}'
        )
    return (
        f'An image NAME{dataset.img_suffix} needs a mask '
        f'NAME{dataset.seg_map_suffix} in the same subfolder: correct '
        'data_prefix or seg_map_suffix, or remove the images'
    )


def _loaded_size(path: str, bands: LoadBands | None) -> tuple[int, int] | None:
    """(H, W) as the image is loaded; None if that is not known."""
    if bands is not None:
        try:
            return bands.read(path).shape[:2]
        except OSError:  # damaged: the training skips it
            return None
    try:  # as OpenCV loads it
        with Image.open(path) as image:
            width, height = image.size
            orientation = image.getexif().get(EXIF_ORIENTATION)
    except UnidentifiedImageError:  # remote sensing and the like
        return None
    turned = orientation in TRANSPOSED
    return (width, height) if turned else (height, width)


def _used(mask: np.ndarray) -> np.ndarray:
    """As np.unique, which sorts all pixels."""
    return np.flatnonzero(np.bincount(mask.ravel(), minlength=256))


def _class_of(label: int, info: dict) -> int:
    """The class index that mmseg's LoadAnnotations makes of a label id."""
    if info.get('reduce_zero_label'):
        label = 255 if label in (0, 255) else label - 1
    return (info.get('label_map') or {}).get(label, label)


def _expected_ids(dataset: BaseDataset, num_classes: int, path: str) -> str:
    if 'labelTrainIds' in path:
        return (
            'these may be raw labelIds under the name of labelTrainIds. Make '
            'them again by csCreateTrainIdLabelImgs of cityscapesscripts'
        )
    start = int(dataset.reduce_zero_label)
    left_out = {dataset.ignore_index} | ({0} if start else set())
    return (
        f'use {start} to {num_classes - 1 + start}, and '
        f'{" or ".join(map(str, sorted(left_out)))} for pixels to leave out, '
        'or list all classes in metainfo and num_classes'
    )
