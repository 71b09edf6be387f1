# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The images that an overview shows, and those searched for neighbours."""

import os
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import ConcatDataset
from mmpretrain.registry import DATASETS
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from mmmoca.apis import Encoder
from mmmoca.apis.images import Images
from mmmoca.apis.opening import image_set
from mmmoca.config_parts import member_configs
from mmmoca.datasets import LoadBands
from mmmoca.datasets.seeding import members
from mmmoca.evaluation import raw_pixels
from mmmoca.evaluation.loaders import with_data_root
from mmmoca.messages import listed

from .pictures import to_picture


class Gallery(Images):
    """Some images of a data set.

    Args:
        dataset (Dataset): The data set.
        rows (Sequence[int]): Indices of the images in the data set.
        pipeline (list[dict]): Configs of transforms, the loader first.

    Attributes:
        labels (list[int | None]): Class of each image, None if unknown.
        names (list[tuple[str, str]]): Class or folder, and file name of each
            image.
        features (dict[str, Tensor]): Name -> L2-normalised features, (N, D).
            Empty unless :meth:`encoded` made the gallery.
    """

    def __init__(
        self, dataset: Dataset, rows: Sequence[int], pipeline: list[dict]
    ) -> None:
        infos = [dataset.get_data_info(row) for row in rows]
        # Sets in memory have no paths.
        sources = [info.get('img_path', info.get('img')) for info in infos]
        super().__init__(sources, pipeline)
        self.dataset, self.rows, self.pipeline = dataset, rows, pipeline
        self.labels = [info.get('gt_label') for info in infos]
        self.names = [self._name(*pair) for pair in zip(rows, infos)]
        self.features: dict[str, Tensor] = {}

    def _name(self, row: int, info: dict) -> tuple[str, str]:
        path = Path(str(info.get('img_path', row)))
        classes = self.dataset.metainfo.get('classes')
        label = info.get('gt_label')
        known = classes and label is not None
        folder = classes[int(label)] if known else path.parent.name
        return folder[-20:], path.name[-20:]

    def part(self, places: Sequence[int]) -> 'Gallery':
        """Return a gallery of some of these images, given their places."""
        rows = [self.rows[place] for place in places]
        return Gallery(self.dataset, rows, self.pipeline)

    def picture(self, index: int) -> np.ndarray:
        """Return one image as a picture, see :func:`to_picture`."""
        return to_picture(self[index], not isinstance(self.loader, LoadBands))

    def places_in(self, other: 'Gallery') -> list[int | None]:
        """Find the place of each image in another gallery, None if absent."""
        places = {}
        if self.dataset is other.dataset:
            places = {row: place for place, row in enumerate(other.rows)}
        return [places.get(row) for row in self.rows]

    def encoded(
        self, encoder: Encoder, feature: str, num_workers: int = 0
    ) -> 'Gallery':
        """Return the readable images, with MOCA's features and raw pixels.

        Args:
            encoder (Encoder): The encoder.
            feature (str): Which of its features to use, 'avg' or 'cls'.
            num_workers (int): Number of processes that read images.

        Returns:
            Gallery: The images that can be read. A log line counts those that
            cannot be read.

        Raises:
            OSError: If no image can be read.
        """
        options = dict(num_workers=num_workers, skip_unreadable=True)
        found = encoder.embed(self, features=feature, **options).pick(feature)
        good = found.isfinite().all(dim=1).nonzero().flatten()
        if not len(good):
            raise OSError(f'none of {len(found)} images can be read')
        part = self.part(good.tolist())
        pixels = [
            raw_pixels(
                encoder.data_preprocessor(dict(inputs=images))['inputs']
            )
            for images in DataLoader(part, 50, num_workers=num_workers)
        ]
        features = {'MOCA': found[good], 'raw pixels': torch.cat(pixels).cpu()}
        part.features = {k: F.normalize(v, dim=1) for k, v in features.items()}
        return part


def open_sets(
    cfg: Config, data: str | None, pipeline: list[dict]
) -> tuple[Dataset, Dataset]:
    """Open the data set of the images to show, and the bank's data set.

    Neighbours are searched in the bank. The two data sets are the same if
    ``data`` is given or the config has no bank of labelled images.

    Args:
        cfg (Config): A pretraining config.
        data (str, optional): Where the images are. Defaults to the images of
            the config.
        pipeline (list[dict]): Pipeline of the encoder.

    Returns:
        tuple[Dataset, Dataset]: The images to show, and the bank.
    """
    loop = cfg.get('val_cfg') or {}
    if data is not None:
        dataset = image_set(data, pipeline)
        masks = os.path.join(dataset.img_prefix, 'masks', '')
        if os.path.isdir(masks):  # not images to show
            paths = [info['img_path'] for info in dataset.data_list]
            rows = [i for i, p in enumerate(paths) if not p.startswith(masks)]
            dataset = dataset.get_subset(rows)
    elif loop.get('bank_dataloader') is not None:
        loaders = cfg.val_dataloader, loop.bank_dataloader
        return tuple(
            DATASETS.build(
                with_data_root(loader, loop.get('data_root')).dataset
            )
            for loader in loaders
        )
    else:
        # A wrapper may repeat images, which would be their own neighbours.
        configs = member_configs(cfg.train_dataloader.dataset)
        parts = [*map(DATASETS.build, configs)]
        dataset = parts[0] if len(parts) == 1 else ConcatDataset(parts)
    return dataset, dataset


def pick_images(groups: Sequence[Hashable], number: int) -> list[int]:
    """Pick random images from as many different groups as possible.

    Args:
        groups (Sequence[Hashable]): Group of each image.
        number (int): Number of images to pick. If there are fewer, all are
            picked.

    Returns:
        list[int]: Indices, sorted by group and then by index.
    """
    grouped = defaultdict(list)
    for index in torch.randperm(len(groups)).tolist():
        grouped[groups[index]].append(index)
    turns = chain.from_iterable(zip_longest(*grouped.values()))
    chosen = [index for index in turns if index is not None][:number]
    return sorted(chosen, key=lambda index: (groups[index], index))


def root_of(dataset: Dataset) -> str:
    """Return the folders of a data set, as its config gives them."""
    roots = [
        getattr(part, 'data_prefix', {}).get('img_path') or part.data_root
        for part in members(dataset)
    ]
    return listed(str(root).rstrip('/') for root in dict.fromkeys(roots))
