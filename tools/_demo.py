# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How the demo reads images and measures what was learnt."""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from mmcv import imwrite
from mmengine.config import Config
from mmpretrain.registry import DATASETS

from mmmoca.datasets import ImageFolder, LoadImage
from mmmoca.datasets.functional import resize
from mmmoca.evaluation import extract_features, knn_top1

MIN_IMAGES, MAX_IMAGES = 100, 5000
MIN_CLASS = 12
# The smallest crop, 0.3 of the area at a ratio of 3 / 4, has 48 pixels then.
SHORT_SIDE = 104


def shrink_images(source: str, target: Path, seed: int) -> Path:
    """Copy images at the size that the training needs.

    Photos of many megapixels would take longer to decode than a step takes.

    Args:
        source (str): Folder of images, at any depth.
        target (Path): Folder for up to ``MAX_IMAGES`` of them, drawn by
            chance. If all of them lie in two or more folders of ``source``
            of at least ``MIN_CLASS``, these are taken for classes: their
            copies go into ``train/<class>/``, one of six into
            ``val/<class>/``.
        seed (int): Seed of the draw.

    Returns:
        Path: ``target``.

    Raises:
        OSError: If there is no such folder or no readable image, or a copy
            cannot be written.
        ValueError: If fewer than ``MIN_IMAGES`` are readable.
    """
    found = ImageFolder(source, with_label=False, pipeline=[])
    order = torch.randperm(
        len(found), generator=torch.Generator().manual_seed(seed)
    )
    paths = [
        found.get_data_info(index)['img_path']
        for index in order[:MAX_IMAGES].tolist()
    ]
    loader = LoadImage(reduce_to=SHORT_SIDE)

    classes = [Path(path).relative_to(source).parts[0] for path in paths]
    counts = Counter(classes)
    labelled = len(counts) > 1 and min(counts.values()) >= MIN_CLASS
    seen = Counter()
    folders = []
    for name in classes:
        split = 'train' if seen[name] % 6 else 'val'
        seen[name] += 1
        folders.append(target / split / name if labelled else target)
    for folder in set(folders):
        folder.mkdir(parents=True, exist_ok=True)

    def shrink(item: tuple[int, str]) -> str | None:
        number, path = item
        try:
            image = loader.read(path)
        except OSError as error:
            return str(error)
        scale = min(1, SHORT_SIDE / min(image.shape[:2]))
        size = [max(1, round(side * scale)) for side in image.shape[:2]]
        copy = resize(image, size)
        imwrite(copy, folders[number] / f'{number:04d}.png')
        return None

    # OpenCV and PyTorch let other threads run meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [e for e in pool.map(shrink, enumerate(paths)) if e]
    readable = len(paths) - len(errors)
    print(f'  {readable} images of {len(found)} in {source}')
    if errors:
        print(f'  {len(errors)} left out, the first: {errors[0]}')
    if readable < MIN_IMAGES:
        raise ValueError(
            f'{source} has {readable} readable images, too few to learn '
            f'from: give a folder with at least {MIN_IMAGES}'
        )
    return target


def accuracies(
    cfg: Config, preprocessor: torch.nn.Module, encoders: dict[str, Callable]
) -> dict[str, float]:
    """K-NN accuracy of each encoder in percent; none without labels."""
    if cfg.val_cfg is None:
        return {}
    datasets = (
        DATASETS.build(loader.dataset)
        for loader in (cfg.val_dataloader, cfg.bank_dataloader)
    )
    (queries, truth), (bank, labels) = (
        extract_features(dataset, preprocessor, encoders)
        for dataset in datasets
    )
    votes = int(labels.max()) + 1, cfg.val_cfg.k, cfg.val_cfg.temperature
    return {
        name: knn_top1(queries[name], bank[name], truth, labels, *votes)
        for name in encoders
    }
