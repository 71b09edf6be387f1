# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Frozen encoders of any checkpoint, and the features of their kinds."""

from typing import NamedTuple

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmpretrain import get_model
from torch import Tensor, nn

from mmmoca.checkpoints import (
    Backbone,
    CheckpointError,
    check_architecture,
    check_heads,
    find_backbone,
    read_checkpoint,
    resize_positions,
)

from .presets import Preset, choose_preset, preset_line

__all__ = ['LabelledFeatures', 'four_features', 'load_encoder']


class LabelledFeatures(NamedTuple):
    """Features of one set of images by one backbone.

    Attributes:
        cls (Tensor): [CLS] after the final norm, (N, D).
        avg (Tensor): Mean patch token after the final norm, (N, D).
        raw_cls (Tensor): [CLS] before it, (N, D).
        raw_avg (Tensor): Mean patch token before it, (N, D).
        labels (Tensor): int64, (N,).
    """

    cls: Tensor
    avg: Tensor
    raw_cls: Tensor
    raw_avg: Tensor
    labels: Tensor

    def pick(self, name: str, normed: bool = True) -> Tensor:
        """'cls', 'avg' or both of them concatenated ('cls-avg')."""
        prefix = '' if normed else 'raw_'
        parts = [getattr(self, prefix + part) for part in name.split('-')]
        return torch.cat(parts, dim=1)


def load_encoder(
    cfg: Config,
    path: str,
    logger: MMLogger,
    which: str | None = None,
    feature: str | None = None,
) -> tuple[nn.Module, Preset, dict]:
    """Build the model of a checkpoint, and choose what to take of it.

    Args:
        cfg (Config): Its ``model``, a classifier whose backbone is filled,
            and the ``data_preprocessor``, if that stands beside it.
        path (str): The checkpoint, of any layout known.
        logger (MMLogger): Told what is loaded and chosen.
        which (str, optional): 'teacher' or 'student'; that of the
            checkpoint's preset if not given.
        feature (str, optional): See :func:`choose_preset`; by default as the
            file records.

    Returns:
        tuple[nn.Module, Preset, dict]: The model in evaluation mode, the
        settings for it, and a record of both for the results.

    Raises:
        ValueError: If the checkpoint does not fit the config's backbone, or
            there is no such feature.
    """
    checkpoint = read_checkpoint(path, lazy=True)
    found = find_backbone(checkpoint, which or 'teacher', path)
    layout = found.origin[0]
    method, preset = choose_preset(layout, feature or found.feature)
    if which is None and found.which not in ('only', preset.which):
        found = find_backbone(checkpoint, preset.which, path)
    model = get_model(cfg)
    _fill(model.backbone, found, path)
    record = preset._asdict() | dict(
        preset=method, layout=layout, which=found.which
    )
    logger.info(
        f'{path}: layout {layout}, all {len(found.state_dict)} tensors '
        f'of the backbone loaded; {preset_line(record)}'
    )
    if method is None:
        logger.warning(
            f'{path}: its layout does not tell the method, whose '
            f'features others publish: name it, as {path}:dino does'
        )
    return model.to(get_device()), preset, record


def _fill(backbone: nn.Module, found: Backbone, path: str) -> None:
    check_heads(backbone, found.meta, 'the backbone of the config')
    state, grid = dict(found.state_dict), tuple(backbone.patch_resolution)
    if 'ln1.weight' not in state:
        raise ValueError(
            f'{path} has no final norm, which [CLS] and [AVG] are taken '
            'after: give a pretrained encoder, not a classifier that was '
            'fine-tuned on the mean patch token'
        )
    if found.grid is not None and found.grid != grid:
        state['pos_embed'] = resize_positions(
            state['pos_embed'], found.grid, grid
        )
    try:
        check_architecture(state, backbone.state_dict(), path)
        backbone.load_state_dict(state)
    except (CheckpointError, RuntimeError) as error:
        lines = str(error).splitlines()
        raise ValueError(
            f'{path} does not fit the backbone of the config: give '
            'another one by --config. '
            + ' '.join(line.strip() for line in lines[:3])
        ) from error


def four_features(backbone: nn.Module, images: Tensor) -> Tensor:
    """[CLS] and mean patch after and before the final norm, (B, 4D).

    Args:
        backbone (nn.Module): A ViT of mmpretrain with a final norm.
        images (Tensor): (B, C, H, W).

    Returns:
        Tensor: In the order of :class:`LabelledFeatures`.
    """
    form = backbone.out_type, backbone.final_norm
    backbone.out_type, backbone.final_norm = 'raw', False
    tokens = backbone(images)[-1]  # (B, 1 + L, D)
    backbone.out_type, backbone.final_norm = form
    parts = [
        part
        for stage in (backbone.ln1(tokens), tokens)
        for part in (stage[:, 0], stage[:, 1:].mean(dim=1))
    ]
    return torch.cat(parts, dim=1)
