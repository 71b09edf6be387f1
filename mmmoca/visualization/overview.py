# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One picture of what a model has learnt, from its config and checkpoint."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmpretrain import get_model
from torch import Tensor

from mmmoca.checkpoints import read_checkpoint
from mmmoca.evaluation import extract_features, knn_search, raw_pixels
from mmmoca.models import MOCA

from .blocks import SHARP, Block, draw_blocks
from .feature_maps import feature_and_word_colors
from .found_masks import mask_block
from .pictures import masked_picture, to_picture
from .shown_images import (
    build_sets,
    pick_images,
    place_of,
    readable,
    root_of,
)

NEAREST = 5
LEGEND = 'grey: masked;  hatched: masked and to be predicted;  '
FRAMES = 'green frame: same class, red frame: another;  '


def draw_overview(
    cfg: Config,
    checkpoint: str,
    data: str | None = None,
    images: int = 8,
    bank_size: int = 2000,
    num_workers: int = 2,
    seed: int = 0,
) -> Figure:
    """Draw a row for each image: masks, features, words and neighbours.

    Where the folder has masks of its images, those that are found in context
    stand beside them.

    Args:
        cfg (Config): A pretraining config.
        checkpoint (str): A checkpoint of the whole model.
        data (str, optional): Folder of the images, at any depth. Defaults to
            that of the config.
        images (int): Number of images shown.
        bank_size (int): Number of images among which neighbours are found.
        num_workers (int): Number of processes that read images.
        seed (int): Seed of the choice of images and of the masks.

    Returns:
        Figure: The figure.

    Raises:
        TypeError: If the config's model is no MOCA.
        ValueError: If the config has neither a ``val_dataloader`` nor a
            ``test_dataloader``, or its images are not of the model's size.
        RuntimeError: If the checkpoint is of another model.
        OSError: If none of the images can be read. Some are left out with a
            warning that counts them.
    """
    # MMEngine would log the initialisation of each parameter.
    MMLogger.get_instance('overview').setLevel('ERROR')
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    torch.manual_seed(seed)
    queries, bank = build_sets(cfg, data)
    untrained, model = _build_model(cfg), _build_model(cfg)
    content = read_checkpoint(checkpoint)
    model.load_state_dict(content.get('state_dict', content))
    members = torch.randperm(len(bank))[:bank_size].tolist()
    members = sorted(readable(bank, members))
    pool = members if queries is bank else range(len(queries))
    places = [place_of(queries, row) for row in pool]
    picked = [pool[i] for i in pick_images([p for p, _ in places], images)]
    picked = readable(queries, picked)

    inputs = torch.stack([queries[row]['inputs'] for row in picked])
    size, shape = tuple(model.backbone.img_size), tuple(inputs.shape[-2:])
    if shape != size:
        raise ValueError(
            f'the pictures need images of the size {size} that the model '
            f'trains on, got {shape}; let the pipeline crop to it'
        )
    # Images are BGR if our preprocessor, or mmpretrain's, converts them.
    converts = getattr(model.data_preprocessor, '_channel_conversion', False)
    bgr = getattr(model.data_preprocessor, 'to_rgb', converts)
    blocks = model_blocks(model, untrained, inputs, bgr)
    encoders = {'MOCA': model.extract_feat, 'raw pixels': raw_pixels}
    (features, labels), (bank_features, bank_labels) = [
        extract_features(
            torch.utils.data.Subset(dataset, rows),
            model.data_preprocessor,
            encoders,
            batch_size=50,
            num_workers=num_workers,
        )
        for dataset, rows in ((queries, picked), (bank, members))
    ]
    masks = mask_block(
        model, (queries, picked), (bank, members), bgr, num_workers
    )
    if masks is not None:
        blocks.append(masks)
    own = [members.index(r) if queries is bank else None for r in picked]
    for name in encoders:
        found = nearest(features[name], bank_features[name], own)
        same = labels is not None and [
            (bank_labels[rows] == label).tolist()
            for rows, label in zip(found, labels)
        ]
        pictures = [
            [to_picture(bank[members[i]]['inputs'], bgr) for i in rows]
            for rows in found
        ]
        columns = [''] * NEAREST
        blocks.append(
            Block(f'nearest images by {name}', columns, pictures, same or None)
        )
    names = ['\n'.join(place_of(queries, row)) for row in picked]
    legend = LEGEND if labels is None else LEGEND + FRAMES
    legend += f'nearest: of {len(members)} images drawn from {root_of(bank)}'
    title = f'{checkpoint}, images of {root_of(queries)}'
    return draw_blocks(blocks, names, shape[0] / shape[1], title, legend)


@torch.no_grad()
def model_blocks(
    model: MOCA, untrained: MOCA, images: Tensor, bgr: bool
) -> list[Block]:
    """Draw what the student sees, and features and words of the teacher.

    Masks come from torch's generator.

    Args:
        model (MOCA): The pretrained model.
        untrained (MOCA): The same model with initial weights, on the same
            device.
        images (Tensor): Packed images of the size that the model trains on,
            (N, C, H, W), uint8.
        bgr (bool): Whether their first channel is blue.

    Returns:
        list[Block]: Images, masked images, features and words.
    """
    data = dict(inputs=images, data_samples=[])
    inputs = model.data_preprocessor(data, False)['inputs']
    pictures = [to_picture(image, bgr) for image in images]
    features, words = feature_and_word_colors(model, inputs)
    before, _ = feature_and_word_colors(untrained, inputs)
    grid = model.backbone.patch_resolution
    masks = model.masking.draw(len(pictures), torch.device('cpu'))
    masked = [
        [
            masked_picture(
                _enlarge(picture),
                mask.visible[index].numpy(),
                mask.predicted[index].numpy(),
                grid,
            )
            for mask in masks
        ]
        for index, picture in enumerate(pictures)
    ]
    rounds = [f'round {i + 1}' for i in range(len(masks))]
    colours = ['untrained', 'pretrained']
    return [
        Block('image', [''], [[picture] for picture in pictures]),
        Block('student sees', rounds, masked),
        Block('PCA of patch features', colours, [*zip(before, features)]),
        Block(
            'codebook',
            ['word of each patch'],
            [[_enlarge(word)] for word in words],
        ),
    ]


def nearest(
    query: Tensor, bank: Tensor, own_rows: Sequence[int | None]
) -> list[list[int]]:
    """Find the nearest images of each query by cosine similarity.

    Args:
        query (Tensor): L2-normalised features, (Q, D).
        bank (Tensor): L2-normalised features of the bank, (N, D).
        own_rows (Sequence[int | None]): Row of each query in the bank, which
            is left out.

    Returns:
        list[list[int]]: Rows of the bank, nearest first.
    """
    rows = knn_search(query, bank, NEAREST + 1)[1].tolist()
    return [
        [row for row in found if row != own][:NEAREST]
        for found, own in zip(rows, own_rows)
    ]


def _enlarge(picture: np.ndarray) -> np.ndarray:
    """Repeat the pixels of a small picture, so that it is not smoothed."""
    scale = max(1, SHARP // max(picture.shape[:2]))
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def _build_model(cfg: Config) -> MOCA:
    """Build the config's model with initial weights."""
    model = get_model(cfg)
    if not isinstance(model, MOCA):
        raise TypeError(
            f'a MOCA model is needed, got a {type(model).__name__}'
        )
    model.init_weights()
    return model.eval().to(get_device())
