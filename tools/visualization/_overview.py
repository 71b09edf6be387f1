# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of overview.py: models, images and their neighbours."""

import argparse

import torch
from matplotlib.figure import Figure
from mmengine.config import Config, ConfigDict
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmengine.runner import load_checkpoint
from mmpretrain.registry import DATASETS, MODELS
from torch.utils.data import Dataset, Subset

from mmmoca.evaluation.loaders import moved
from mmmoca.models import MOCA
from mmmoca.visualization import (
    Neighbours,
    draw_overview,
    extract_features,
    pick_images,
    raw_pixels,
)


def build_model(cfg: Config) -> MOCA:
    """Build the config's model as it is before training."""
    model = MODELS.build(cfg.model)
    if not isinstance(model, MOCA):
        raise TypeError(
            f'a MOCA model is needed, got a {type(model).__name__}'
        )
    model.init_weights()
    return model.eval().to(get_device())


def build_sets(cfg: Config, data: str | None) -> tuple[Dataset, Dataset]:
    """Build the set of the rows and the bank, the same one if need be."""
    pipeline = _pipeline(cfg)
    if data is not None:
        source = dict(
            type='mmmoca.ImageFolder',
            data_root=data,
            with_label=False,
            pipeline=pipeline,
        )
        dataset = DATASETS.build(source)
        return dataset, dataset
    loop = cfg.get('val_cfg') or {}
    if loop.get('bank_dataloader') is not None:
        loaders = cfg.val_dataloader, loop.bank_dataloader
        return tuple(
            DATASETS.build(moved(loader, loop.get('data_root')).dataset)
            for loader in loaders
        )
    source = cfg.train_dataloader.dataset
    dataset = DATASETS.build(ConfigDict(source, pipeline=pipeline))
    return dataset, dataset


def _pipeline(cfg: Config) -> list[dict]:
    """The validation's pipeline, or one for images of the model's size."""
    if cfg.get('val_dataloader') is not None:
        return cfg.val_dataloader.dataset.pipeline
    size = cfg.model.backbone.img_size
    height, width = (size, size) if isinstance(size, int) else size
    return [
        dict(type='mmmoca.LoadImage', skip_unreadable=False),
        # The resized image covers the crop whatever its shape.
        dict(type='ResizeEdge', scale=max(height, width), edge='short'),
        dict(type='CenterCrop', crop_size=(width, height)),
        dict(type='PackInputs'),
    ]


def labels_of(dataset: Dataset) -> torch.Tensor | None:
    """Classes of all images, (N, ), without reading them; None if none."""
    if 'gt_label' not in dataset.get_data_info(0):
        return None
    return torch.tensor(
        [
            int(dataset.get_data_info(i)['gt_label'])
            for i in range(len(dataset))
        ]
    )


def draw(args: argparse.Namespace) -> Figure:
    """Draw some images, what the model sees of them and their neighbours.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        Figure: To be written by its ``savefig``.

    Raises:
        TypeError: If the config's model is no MOCA.
        RuntimeError: If the checkpoint is of another model.
    """
    # It would print what each parameter was initialised by.
    MMLogger.get_instance('overview', log_level='ERROR')
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    torch.manual_seed(args.seed)
    queries, bank = build_sets(cfg, args.data)
    untrained, model = build_model(cfg), build_model(cfg)
    load_checkpoint(model, args.checkpoint, map_location='cpu', strict=True)

    members = torch.randperm(len(bank))[: args.bank].tolist()
    own_rows = None
    if queries is bank:
        queries = Subset(bank, members)
        own_rows = picked = pick_images(None, len(queries), args.images)
        classes = None
    else:
        picked = pick_images(labels_of(queries), len(queries), args.images)
        classes = bank.metainfo.get('classes')
    bank = Subset(bank, members)
    encoders = dict(MOCA=model.extract_feat)
    encoders['raw pixels'] = raw_pixels
    options = dict(batch_size=args.batch_size, num_workers=args.num_workers)
    described = [
        extract_features(dataset, model.data_preprocessor, encoders, **options)
        for dataset in (Subset(queries, picked), bank)
    ]
    (features, labels), (bank_features, bank_labels) = described
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
    names = None
    if classes and labels is not None:
        names = [classes[label] for label in labels]
    images = torch.stack([queries[index]['inputs'] for index in picked])
    return draw_overview(model, untrained, images, blocks, names)
