# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Evaluates an encoder with dense protocols, on cached patch features."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from mmmoca.datasets.masks import IGNORED, mask_beside, read_mask
from mmmoca.evaluation.memory import check_memory
from mmmoca.evaluation.metrics import mean_iou
from mmmoca.evaluation.protocols.in_context import in_context_masks
from mmmoca.evaluation.protocols.linear_seg import linear_masks
from mmmoca.files import atomic_write
from mmmoca.messages import listed

from .embedding import digest_of, is_whole, list_digest
from .encoder import Encoder
from .images import Images
from .opening import open_images

DENSE = 'incontext', 'linear-seg'


def patch_maps(
    encoder: Encoder,
    images: Images,
    cache: str | os.PathLike,
    num_workers: int | None = None,
) -> Tensor:
    """Return the patch features of images, and cache them in a file.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        images (Images): Image files, with transforms that resize them to
            the encoder's input size.
        cache (str | os.PathLike): Folder for the features. A later call with
            the same weights, images and transforms reads them from there.
        num_workers (int, optional): See :meth:`Encoder.embed`.

    Returns:
        Tensor: The patch tokens after the final norm, as maps, (N, D, h, w),
        float16.

    Raises:
        OSError: If an image cannot be read.
        ValueError: If the features do not fit in memory.
    """
    shape = len(images), *encoder.feature_shape('patches')
    check_memory(
        'images with all their patches',
        len(images),
        2 * math.prod(shape[1:]),
    )
    paths = [str(images.path(i)) for i in range(len(images))]
    steps = [type(step).__name__ for step in images.transforms]
    name = digest_of([encoder.identity(), steps, list_digest(paths)])
    path = Path(cache) / f'{name}.patches.npy'
    if is_whole(path, shape, np.float16):
        return torch.from_numpy(np.load(path))
    # Allocated once: joining parts would need twice the memory.
    maps = torch.empty(shape, dtype=torch.half)
    for rows, found, errors in encoder.stream(
        images, features=('patches',), num_workers=num_workers
    ):
        if errors:  # an image that has a mask must not be skipped
            raise next(iter(errors.values()))
        maps[rows.start : rows.stop] = found.patches
    with atomic_write(path) as temporary, open(temporary, 'wb') as file:
        np.save(file, maps.numpy())
    return maps


def images_with_masks(
    encoder: Encoder, root: str | os.PathLike, split: str
) -> tuple[Images, list[np.ndarray]]:
    """Return images and their masks, resized to the encoder's input size.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        root (str | os.PathLike): Folder with the images in ``images/<split>``
            or ``<split>``. For each image, ``masks/<split>`` contains a PNG
            with the same name, see :func:`read_mask`.
        split (str): 'train' or 'val'.

    Returns:
        tuple[Images, list[np.ndarray]]: The images; and their masks, (H, W),
        uint8, in the same order.

    Raises:
        OSError: If a folder or a mask is missing, or cannot be read.
        ValueError: See :func:`read_mask`.
    """
    root = Path(root).expanduser()
    folder = root / 'images' / split
    folder = folder if folder.is_dir() else root / split
    height, width = encoder.preprocessing.img_size
    loader = encoder.pipeline[0]
    resize = dict(type='mmpretrain.Resize', scale=(width, height))
    found = open_images(str(folder), [loader, resize])
    masks, missing = [], []
    for index in range(len(found)):
        image = Path(found.path(index))
        if (path := mask_beside(image)) is None:
            missing.append(image)
            continue
        mask = read_mask(path, image)
        masks.append(
            cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST)
        )
    if missing:
        raise FileNotFoundError(
            f'{len(missing)} of {len(found)} images have no mask: each needs '
            f'a PNG with the same name below {root / "masks" / split}. Images '
            f'without a mask: {listed(missing)}'
        )
    return found, masks


def evaluate_masks(
    encoder: Encoder,
    root: str | os.PathLike,
    cache: str | os.PathLike,
    protocols: Sequence[str] = DENSE,
    bank_size: int = 102_400,
    steps: int = 2000,
    seed: int = 0,
    num_workers: int | None = None,
) -> dict:
    """Evaluate an encoder's frozen patch features on semantic segmentation.

    Images and masks are resized to the encoder's input size. Predictions are
    scored at this size. Nothing is augmented.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        root (str | os.PathLike): See :func:`images_with_masks`.
        cache (str | os.PathLike): See :func:`patch_maps`.
        protocols (Sequence[str]): Names of the protocols to run, from
            :data:`DENSE`.
        bank_size (int): Number of patches in the bank of in-context
            segmentation.
        steps (int): Training steps of the linear layer.
        seed (int): Seed of both protocols.
        num_workers (int, optional): See :meth:`Encoder.embed`.

    Returns:
        dict: ``incontext``, a dict with ``mIoU`` in percent and
        ``bank_patches``, the size of the bank; ``linear-seg``, a dict with
        ``mIoU``; and ``missing_classes``, the classes of validation masks that
        are in no training mask, so that no protocol can predict them.

    Raises:
        OSError: See :func:`images_with_masks`.
        ValueError: If a mask is not valid (see :func:`read_mask`), if the
            training masks have fewer than two classes, if the validation masks
            have no class, or if the features do not fit in memory.
    """
    sets = [images_with_masks(encoder, root, s) for s in ('train', 'val')]
    known, asked = (
        set().union(*map(np.unique, masks)) - {IGNORED} for _, masks in sets
    )
    if len(known) < 2 or not asked:
        raise ValueError(
            f'the training masks of {root} need at least two classes, and '
            f'its validation masks one; {IGNORED} is ignored, so it does not '
            'count as a class'
        )
    train, val = (
        (patch_maps(encoder, images, cache, num_workers), masks)
        for images, masks in sets
    )
    result: dict = dict(missing_classes=sorted(map(int, asked - known)))
    if 'incontext' in protocols:
        found, size = in_context_masks(train, val, bank_size, seed)
        miou = mean_iou(found, val[1])
        result['incontext'] = dict(mIoU=miou, bank_patches=size)
    if 'linear-seg' in protocols:
        found = linear_masks(train, val, steps, seed)
        result['linear-seg'] = dict(mIoU=mean_iou(found, val[1]))
    return result
