# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All frozen protocols, on features that are extracted once per encoder."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.device import get_device
from mmengine.logging import print_log
from torch import Tensor, nn

from mmmoca.datasets.image_set import ImageSet
from mmmoca.evaluation.knn import knn_top1
from mmmoca.evaluation.low_shot import (
    low_shot_features,
    low_shot_predictions,
    low_shot_results,
)
from mmmoca.evaluation.presets import Preset
from mmmoca.evaluation.probing import attentive_accuracy, linear_accuracy
from mmmoca.evaluation.rank_me import rank_me
from mmmoca.evaluation.subsets import draw_subset, images_by_class
from mmmoca.models import AttentiveHead, sincos_positions_2d
from mmmoca.models.initialization import init_transformer

from .dense_comparison import check_maps, patch_maps
from .embedding import digest_of, embed_to_file, is_whole, list_digest
from .encoder import Encoder
from .images import Images
from .opening import image_set


def untrain(encoder: Encoder, seed: int = 0) -> None:
    """Give an encoder the initial weights that MOCA trains from.

    Args:
        encoder (Encoder): Of :func:`mmmoca.load`, changed in place.
        seed (int): Of the weights. Defaults to 0.
    """
    vit = encoder.backbone
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        init_transformer(vit)
        nn.init.normal_(vit.cls_token, std=0.02)
        if getattr(vit, 'num_registers', 0):
            nn.init.normal_(vit.register_tokens, std=0.02)
    if getattr(vit, 'rotary_periods', None) is None:
        positions = sincos_positions_2d(vit.patch_resolution, vit.embed_dims)
        vit.pos_embed.data[:] = F.pad(positions, (0, 0, 1, 0))  # none of [CLS]


def evaluate(
    encoder: Encoder,
    data_root: str | os.PathLike,
    cache: str | os.PathLike,
    preset: Preset | None = None,
    protocols: Sequence[str] = ('knn', 'linear', 'lowshot'),
    shots: Sequence[int] = (1, 2, 5),
    percent: Sequence[float] = (1.0,),
    sets: int = 3,
    epochs: int = 100,
    batch_size: int = 256,
    seed: int = 0,
    num_workers: int | None = None,
) -> dict:
    """Evaluate a frozen encoder as its method is published.

    Unlike in the protocols' own configs, linear and attentive probing see no
    augmented images, and all transforms are the encoder's.

    Args:
        encoder (Encoder): Of :func:`mmmoca.load`.
        data_root (str | os.PathLike): Folder with ``train`` and ``val``.
        cache (str | os.PathLike): Folder for the features. A later call with
            the same weights, images and transforms reads them again.
        preset (Preset, optional): The features and settings to use; the
            encoder's if not given.
        protocols (Sequence[str]): Which of them to run, 'attentive' too.
        shots (Sequence[int]): Of low-shot, images a class.
        percent (Sequence[float]): Of low-shot, percentages of each class.
        sets (int): Of low-shot, draws for each of both, as make_subset.py's.
        epochs (int): Of linear and attentive probing.
        batch_size (int): Likewise.
        seed (int): Of the draws and of both.
        num_workers (int, optional): See :meth:`Encoder.embed`.

    Returns:
        dict: What each protocol gave, and ``rank_me`` of [AVG] of the
        validation images.

    Raises:
        OSError: If there are no images, or none can be read. Some are left
            out, and counted in ``unreadable`` of the result.
        ValueError: If the sets have other classes or only one, or a class
            has too few images; or if the patch features of attentive probing
            do not fit memory, or its head.
    """
    preset = preset or encoder.preset
    images = [
        image_set(os.path.join(data_root, split), encoder.pipeline, True)
        for split in ('train', 'val')
    ]
    classes, others = (part.metainfo['classes'] for part in images)
    if classes != others or len(classes) < 2:
        raise ValueError(
            f'{data_root} needs the same two classes or more, a folder each, '
            'in train/ and val/'
        )
    subsets = {}
    if 'lowshot' in protocols:
        subsets = _subsets(images[0], shots, percent, sets, seed)
    number = sum(map(len, images))
    if 'attentive' in protocols:
        AttentiveHead(encoder.backbone.embed_dims, len(classes), [1])
        check_maps(encoder, number)
    found = [_features(encoder, part, cache, num_workers) for part in images]
    images = [part for part, _ in found]
    train, val = (features for _, features in found)
    unreadable = number - sum(map(len, images))
    if unreadable and subsets:
        subsets = _subsets(images[0], shots, percent, sets, seed)
    labels, truth = (torch.from_numpy(p.get_gt_labels()) for p in images)
    rank = rank_me(torch.from_numpy(val['avg']))
    result: dict = dict(unreadable=unreadable, rank_me=rank)
    if 'knn' in protocols:
        query, bank = (
            F.normalize(_pick(part, preset.knn).to(get_device()), dim=1)
            for part in (val, train)
        )
        of_10, of_20 = knn_top1(
            query,
            bank,
            truth,
            labels,
            len(classes),
            (10, 20),
            preset.temperature,
        )
        result['knn'] = {'k=10': of_10, 'k=20': of_20}
    if 'linear' in protocols:
        result['linear'] = linear_accuracy(
            (_pick(train, preset.linear), labels),
            (_pick(val, preset.linear), truth),
            len(classes),
            epochs,
            batch_size,
            seed,
        )
    if 'attentive' in protocols:
        files = [Images(p.data_list, encoder.pipeline) for p in images]
        maps = [patch_maps(encoder, p, cache, num_workers) for p in files]
        with torch.random.fork_rng():
            result['attentive'] = attentive_accuracy(
                (maps[0], labels),
                (maps[1], truth),
                len(classes),
                epochs,
                batch_size,
                seed,
            )
    if subsets:
        shown, asked = (
            low_shot_features(_pick(part, preset.lowshot, 'raw_'))
            for part in (train, val)
        )
        predictions, failed = low_shot_predictions(
            shown, labels, asked, subsets, regularization=preset.regularization
        )
        if failed:
            print_log(
                f'not converged: low-shot {"; ".join(failed)}',
                logger='current',
                level=logging.WARNING,
            )
        hits = (predictions == truth[:, None]).double()
        result['lowshot'] = low_shot_results(
            subsets, (100 * hits.mean(dim=0)).tolist()
        )
    return result


def _pick(found: dict, feature: str, prefix: str = '') -> Tensor:
    parts = [found[prefix + part] for part in feature.split('-')]
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _features(
    encoder: Encoder,
    images: ImageSet,
    cache: str | os.PathLike,
    num_workers: int | None,
) -> tuple[ImageSet, dict[str, np.ndarray]]:
    """The images that can be read, and their features.

    [CLS] and mean patch token, after the final norm and before it.
    """
    kinds = 'cls', 'avg', 'raw_cls', 'raw_avg'
    found = Images(images.data_list, encoder.pipeline)
    paths = [found.path(i) for i in range(len(found))]
    name = digest_of([encoder.identity(), list_digest(paths)])
    path = Path(cache) / f'{name}.npy'
    if is_whole(path, (len(found), len(kinds) * encoder.backbone.embed_dims)):
        lacking = np.flatnonzero(np.isnan(np.load(path, 'r')[:, 0]))
        if any(isinstance(found[row], Tensor) for row in lacking):
            path.unlink()  # they can be read by now
    embed_to_file(
        encoder,
        found,
        path,
        feature='-'.join(kinds),
        num_workers=num_workers,
        skip_unreadable=True,
    )
    rows = np.load(path)
    good = np.isfinite(rows[:, 0])
    if not good.all():
        rows = rows[good]
        images = images.get_subset(np.flatnonzero(good).tolist())
    return images, dict(zip(kinds, np.split(rows, len(kinds), axis=1)))


def _subsets(
    dataset: ImageSet,
    shots: Sequence[int],
    percent: Sequence[float],
    sets: int,
    seed: int,
) -> dict[str, list[list[int]]]:
    """Rows of the training images for each set, by what is drawn."""
    images = images_by_class(dataset)
    wanted = {f'{n} shot': dict(shots=n) for n in shots} | {
        f'{p:g} %': dict(percent=p) for p in percent
    }
    return {
        name: [
            [images[c][f] for c, f in draw_subset(images, (seed, i), **how)]
            for i in range(sets)
        ]
        for name, how in wanted.items()
    }
