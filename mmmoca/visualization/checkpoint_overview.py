# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The overview of a checkpoint, from its config and image folders."""

import warnings

import torch
from matplotlib.figure import Figure
from mmengine.config import Config, ConfigDict
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmengine.runner import load_checkpoint
from mmpretrain import get_model
from mmpretrain.registry import DATASETS
from torch.utils.data import Dataset, Subset

from mmmoca.checkpoints import guarded
from mmmoca.evaluation import extract_features, raw_pixels
from mmmoca.evaluation.loaders import with_data_root
from mmmoca.models import MOCA

from .neighbours import Neighbours, pick_images
from .overview import draw_overview


def draw_checkpoint(
    cfg: Config,
    checkpoint: str,
    data: str | None = None,
    images: int = 8,
    bank_size: int = 2000,
    num_workers: int = 2,
    seed: int = 0,
) -> Figure:
    """Draw images, features of a model, and nearest neighbours.

    Args:
        cfg (Config): A pretraining config.
        checkpoint (str): A checkpoint of the whole model.
        data (str, optional): Folder of the images, at any depth. Defaults to
            that of the config.
        images (int): Number of images shown.
        bank_size (int): Number of images among which neighbours are found.
        num_workers (int): Number of processes that read images.
        seed (int): Seed of the choice of images.

    Returns:
        Figure: The figure.

    Raises:
        TypeError: If the config's model is no MOCA.
        ValueError: If the config has neither a ``val_dataloader`` nor a
            ``test_dataloader``.
        RuntimeError: If the checkpoint is of another model.
        OSError: If none of the images can be read. Some are left out with a
            warning that counts them.
    """
    # MMEngine would log the initialisation of each parameter.
    MMLogger.get_instance('overview', log_level='ERROR')
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    torch.manual_seed(seed)
    queries, bank = _build_sets(cfg, data)
    untrained, model = _build_model(cfg), _build_model(cfg)
    load_checkpoint(
        model, guarded(checkpoint), map_location='cpu', strict=True
    )

    members = _readable(bank, torch.randperm(len(bank))[:bank_size].tolist())
    own_rows = classes = None
    if queries is bank:
        queries = Subset(bank, members)
        own_rows = picked = pick_images(None, len(queries), images)
    else:
        truth = torch.from_numpy(queries.get_gt_labels())
        picked = _readable(queries, pick_images(truth, len(queries), images))
        classes = bank.metainfo.get('classes')
    bank = Subset(bank, members)
    encoders = {'MOCA': model.extract_feat, 'raw pixels': raw_pixels}
    options = dict(batch_size=50, num_workers=num_workers)
    (features, labels), (bank_features, bank_labels) = [
        extract_features(dataset, model.data_preprocessor, encoders, **options)
        for dataset in (Subset(queries, picked), bank)
    ]
    blocks = [
        Neighbours.search(
            f'nearest images by {name}',
            bank,
            features[name],
            bank_features[name],
            None if labels is None else (labels, bank_labels),
            own_rows,
        )
        for name in encoders
    ]
    names = [classes[label] for label in labels] if classes else None
    inputs = torch.stack([queries[index]['inputs'] for index in picked])
    return draw_overview(model, untrained, inputs, blocks, names)


def _build_model(cfg: Config) -> MOCA:
    """Build the config's model with initial weights."""
    model = get_model(cfg)
    if not isinstance(model, MOCA):
        raise TypeError(
            f'a MOCA model is needed, got a {type(model).__name__}'
        )
    model.init_weights()
    return model.eval().to(get_device())


def _readable(dataset: Dataset, rows: list[int]) -> list[int]:
    """Those of some rows whose images can be read."""
    dataset.test_mode = True  # else another image would take its place
    good, problem = [], None
    for row in rows:
        try:
            dataset[row]
            good.append(row)
        except OSError as error:
            problem = error
    if problem is not None:
        if not good:
            raise problem
        warnings.warn(
            f'{len(rows) - len(good)} of {len(rows)} images are left out, the '
            f'last because {problem}',
            stacklevel=3,
        )
    return good


def _build_sets(cfg: Config, data: str | None) -> tuple[Dataset, Dataset]:
    """Build the data sets of the images and of the bank.

    Without labelled images both are the same set.
    """
    loop = cfg.get('val_cfg') or {}
    if data is None and loop.get('bank_dataloader') is not None:
        loaders = cfg.val_dataloader, loop.bank_dataloader
        return tuple(
            DATASETS.build(
                with_data_root(loader, loop.get('data_root')).dataset
            )
            for loader in loaders
        )
    loader = cfg.get('val_dataloader') or cfg.get('test_dataloader')
    if loader is None:
        raise ValueError(
            'the config has no test_dataloader, whose pipeline reads the '
            'images to show'
        )
    source = cfg.train_dataloader.dataset
    if data is not None:
        source = dict(
            type='mmmoca.ImageFolder', data_root=data, with_label=False
        )
        if 'extensions' in loader.dataset:
            source['extensions'] = loader.dataset.extensions
    source = ConfigDict(source, pipeline=loader.dataset.pipeline)
    dataset = DATASETS.build(source)
    return dataset, dataset
