# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features on disk, found again by what they were made from."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_reduce, is_main_process
from mmengine.logging import MMLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from mmmoca.checkpoints import read_checkpoint
from mmmoca.datasets.image_places import stored_in
from mmmoca.files import atomic_write
from mmmoca.version import __version__

from .features import FeatureShard, extract_shard
from .gather import gather_samples

__all__ = ['FeatureCache', 'weights_digest']


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of names, types, shapes and values of all weights.

    Args:
        model (nn.Module): The model.

    Returns:
        str: 64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        value = value.detach().cpu().contiguous()
        digest.update(f'{name} {value.dtype} {tuple(value.shape)}'.encode())
        digest.update(value.flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


class FeatureCache:
    """Features in a folder, one file for each way that they were made.

    Args:
        folder (str | Path): The folder, made with the first file.
        logger (MMLogger): Told what is extracted, read and written.
    """

    def __init__(self, folder: str | Path, logger: MMLogger) -> None:
        self.folder = Path(folder)
        self.logger = logger

    def features(
        self,
        loader: DataLoader,
        describe: Callable[[dict], tuple[Tensor, Sequence]],
        title: str,
        made_from: dict[str, Any],
    ) -> FeatureShard:
        """All images of a loader: read, or else extracted and written.

        Called by all ranks together; the first one writes, and all of them
        have to find a file for it to be read.

        Args:
            loader (DataLoader): The images.
            describe (Callable): Batch -> features (B, D) and data samples.
            title (str): Begins the log lines.
            made_from (dict): All that changes the features, beside the
                images: digest of the weights, transforms, model config...
                The file's name depends on them, on the images and on the
                version of this package.

        Returns:
            FeatureShard: Each image once, in the order of the data set, on
            the CPU.

        Raises:
            ValueError: As :func:`mmmoca.evaluation.features.extract_shard`.
        """
        images = _list_digest(loader.dataset)
        made_from = dict(made_from, images=images, version=__version__)
        text = json.dumps(made_from, sort_keys=True, default=repr)
        name = hashlib.sha256(text.encode()).hexdigest()
        path = self.folder / f'{name}.pt'
        found = torch.tensor(path.is_file()).int()
        all_reduce(found, 'min')
        if found:
            self.logger.info(f'{title}: features read from {path}')
            return FeatureShard(**read_checkpoint(path))
        ids, feats, labels = extract_shard(
            loader, describe, title, self.logger
        )
        shard = FeatureShard(*gather_samples(ids, feats.cpu(), labels))
        if is_main_process():
            with atomic_write(path) as temporary:
                torch.save(shard._asdict(), temporary)
            self.logger.info(f'{title}: features written to {path}')
        return shard


def _list_digest(dataset: Dataset) -> str:
    """SHA-256 of the paths and labels of a data set's images, in order.

    Size and time of change stand for the content of a local file.
    """
    digest = hashlib.sha256()
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        path, label = info['img_path'], info['gt_label']
        line = f'{path}\0{int(label)}'
        file = stored_in(path) or path
        if os.path.isfile(file):
            status = os.stat(file)
            line += f'\0{status.st_size}\0{status.st_mtime_ns}'
        digest.update(f'{line}\n'.encode())
    return digest.hexdigest()
