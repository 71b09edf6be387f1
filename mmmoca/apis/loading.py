# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Loads the encoder of a checkpoint: :func:`mmmoca.load`."""

import logging
import os
from collections.abc import Sequence

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import print_log
from mmengine.utils import to_2tuple

from mmmoca.checkpoints import (
    FILE_SCHEME,
    CheckpointError,
    adapt_backbone,
    build_vit,
    local_file,
    preprocessing_of,
    read_backbone,
)
from mmmoca.engine.config_check import wrong_scale
from mmmoca.evaluation.presets import choose_preset
from mmmoca.hub import ModelHub
from mmmoca.messages import printable

from .encoder import Encoder


def load(
    checkpoint: str | os.PathLike,
    which: str = 'teacher',
    device: torch.device | str | None = None,
    img_size: int | tuple[int, int] | None = None,
    num_heads: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    source_grid: tuple[int, int] | None = None,
    weights: str | None = None,
    config: Config | None = None,
) -> Encoder:
    """Load the encoder of a checkpoint of any known layout.

    The architecture is inferred from the tensors. Images are prepared as the
    checkpoint records. Runs write this record, and converters copy it. Without
    it, images are prepared as for ImageNet, and a log line says so.

    Args:
        checkpoint (str | os.PathLike): A file of any layout in
            docs/guides/checkpoints.md, or its URL; or the name of a model with
            published weights, such as 'moca_vit-b16_200e_v1.0'. Weights are
            downloaded once.
        which (str): 'teacher' (default, as in all of the paper's
            evaluations) or 'student'.
        device (torch.device | str, optional): Defaults to the GPU if there
            is one.
        img_size (int | tuple[int, int], optional): Height and width in
            pixels to which images are resized and cropped. Positions are
            resized to fit. Defaults to the size in pretraining.
        num_heads (int, optional): Number of attention heads, if neither the
            file nor the size of the ViT determines it.
        mean (Sequence[float], optional): Mean of each channel, instead of the
            recorded one. It is in pixel values of the image files (0 to 255
            for 8-bit images), and in the order
            ``encoder.preprocessing.channel_order``.
        std (Sequence[float], optional): Standard deviation of each channel,
            given in the same way.
        source_grid (tuple[int, int], optional): Patch rows and columns that
            the positions in the file are for. Defaults to the recorded ones,
            or to a square.
        weights (str, optional): 'raw' or 'averaged', for a file that has
            both. Defaults to those that other programs load. A log line says
            which are used.
        config (Config, optional): Config of an evaluation, whose
            preprocessing replaces the recorded one.

    Returns:
        Encoder: The encoder. Its method :meth:`~Encoder.embed` returns
        features of images.

    Raises:
        CheckpointError: If the file is missing, damaged or cannot be
            downloaded, has no ViT of a known layout, or lacks a fact such as
            the number of heads. In the last case the message says which
            argument to pass.
        OSError: If the system does not let the file be read.
        ValueError: If ``which`` or ``weights`` is not one of the values above.
    """
    path = os.path.expanduser(os.fsdecode(checkpoint))
    if not os.path.isfile(path) and ModelHub.has(path):
        url = ModelHub.get(path).weights
        if url is None:
            raise CheckpointError(
                f'no weights of {path} are published: train it with its config'
            )
        path = url.removeprefix(FILE_SCHEME)
    # A downloaded file stays in the folder of torch.hub.
    with local_file(path) as path:
        backbone = read_backbone(path, which, weights)
    size = None if img_size is None else to_2tuple(img_size)
    try:
        backbone = adapt_backbone(backbone, size, source_grid=source_grid)
        settings = preprocessing_of(
            backbone, mean, std, config and config.to_dict()
        )
        bands = settings.pipeline[0]['type'].endswith('LoadBands')
        problem = wrong_scale(settings.mean, settings.std)
        if problem and settings.source == 'given' and not bands:
            raise CheckpointError(problem)
        with torch.random.fork_rng(devices=()):  # initial weights are not used
            vit = build_vit(backbone, num_heads)
    except CheckpointError as error:
        raise CheckpointError(f'{path}: {error}') from error
    metainfo = dict(
        checkpoint=os.path.abspath(path),
        layout=backbone.layout,
        which=backbone.which,
        feature=backbone.feature,
        num_heads=vit.arch_settings['num_heads'],
        norm_eps=vit.ln1.eps,
    )
    preset = choose_preset(backbone.layout, backbone.feature)
    changes = list(backbone.changes)
    if settings.source == 'assumed':
        changes.append(
            'it does not say how its images were prepared: mean and std are '
            "assumed to be ImageNet's; pass mean= and std= to change them"
        )
    for change in changes:
        print_log(printable(f'{path}: {change}'), logger='current')
    if own := backbone.record.get('computed_by'):
        print_log(
            printable(
                f'{path}: in its run, {own} computed the features; here a '
                'plain ViT with the same weights does. To evaluate the '
                'original model, run `mmmoca test` with the config of its run'
            ),
            logger='current',
            level=logging.WARNING,
        )
    encoder = Encoder(vit, settings, preset, metainfo)
    return encoder.to(device or get_device())
