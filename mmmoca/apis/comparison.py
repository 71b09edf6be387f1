# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Evaluates frozen encoders on labelled or unlabelled images."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.device import get_device
from torch import Tensor

from mmmoca.config_parts import short_name
from mmmoca.datasets import evenly_spaced
from mmmoca.datasets.class_names import check_same_classes
from mmmoca.datasets.image_set import ImageSet
from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.metrics import (
    KNNAccuracy,
    LinearProbeAccuracy,
    LowShotAccuracy,
    NeighbourAgreement,
    set_accuracies,
)
from mmmoca.evaluation.presets import Preset
from mmmoca.evaluation.protocols.agreement import neighbour_agreement
from mmmoca.evaluation.protocols.knn import (
    knn_predictions,
    knn_settings,
    small_bank,
)
from mmmoca.evaluation.protocols.linear import linear_predictions
from mmmoca.evaluation.protocols.lowshot import (
    low_shot_features,
    low_shot_predictions,
)
from mmmoca.evaluation.rank_me import rank_me
from mmmoca.evaluation.subsets import draw_subset, images_by_class
from mmmoca.messages import warn
from mmmoca.models import sincos_positions_2d
from mmmoca.models.initialization import init_encoder
from mmmoca.shipped import shipped

from .embedding import digest_of, embed_to_file, is_whole, list_digest
from .encoder import Encoder
from .images import Images
from .opening import image_set
from .random_numbers import callers_numbers

VIEWS = '_base_/datasets/imagenet_two-views.py'


def untrain(encoder: Encoder, seed: int = 0) -> None:
    """Reset an encoder to the initial weights of MOCA's training.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned. Changed in
            place.
        seed (int): Seed of the weights. Defaults to 0.
    """
    vit = encoder.backbone
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        init_encoder(vit)
    if getattr(vit, 'rotary_periods', None) is None:
        positions = sincos_positions_2d(vit.patch_resolution, vit.embed_dims)
        vit.pos_embed.data[:] = F.pad(positions, (0, 0, 1, 0))  # 0 for [CLS]


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
    """Evaluate a frozen encoder with its method's published settings.

    Four things differ from the configs of the protocols. Linear probing uses
    no augmentation, and batches of 256 by default. Low-shot classification
    draws several sets for each percentage, not one. All images are prepared by
    the encoder's transforms.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        data_root (str | os.PathLike): Folder of labelled images, in
            ``train/<class>/`` and ``val/<class>/``.
        cache (str | os.PathLike): Folder for the features. A later call with
            the same weights, images and transforms reads them from there.
        preset (Preset, optional): The features and settings to use. Defaults
            to the encoder's preset.
        protocols (Sequence[str]): Names of the protocols to run: 'knn',
            'linear' and 'lowshot'.
        shots (Sequence[int]): Numbers of training images per class for
            low-shot classification.
        percent (Sequence[float]): Percentages of each class's training images
            for low-shot classification.
        sets (int): Number of training sets to draw for each item of ``shots``
            and ``percent``. They are drawn in the same way as by
            make_subset.py.
        epochs (int): Epochs of linear probing.
        batch_size (int): Batch size of linear probing.
        seed (int): Seed of the draws and of linear probing.
        num_workers (int, optional): See :meth:`Encoder.embed`.

    Returns:
        dict: The accuracies of each protocol, by name; ``images``, the number
        of validation images; ``rank_me``, the RankMe of their mean patch
        tokens; and ``unreadable``, the number of images that were left out
        because they cannot be read.

    Raises:
        OSError: If ``train/`` or ``val/`` has no images, or none of the up to
            20 images that are tried in it can be read.
        ValueError: If ``train/`` and ``val/`` have different classes or only
            one class, or if a class has too few images for a low-shot set.
    """
    preset = preset or encoder.preset
    images = [*labelled_sets(encoder, data_root).values()]
    classes = images[0].metainfo['classes']
    draws = shots, percent, sets, seed
    subsets = _subsets(images[0], *draws) if 'lowshot' in protocols else {}
    found = [_features(encoder, part, cache, num_workers) for part in images]
    unreadable = sum(map(len, images)) - sum(len(part) for part, _ in found)
    if unreadable and subsets:
        subsets = _subsets(found[0][0], *draws)
    rank = rank_me(found[1][1]['avg'])
    number = len(found[1][0])
    result: dict = dict(unreadable=unreadable, rank_me=rank, images=number)
    if 'knn' in protocols:
        bank, queries = _pick(found, preset.knn, _unit)
        settings = knn_settings((10, 20), preset.temperature)
        if note := small_bank(settings, len(bank.ids)):
            warn(note)
        knn = KNNAccuracy()
        for samples in knn_predictions(bank, queries, settings, len(classes)):
            knn.process(None, samples)
        top1 = knn.compute_metrics(knn.results)
        result['knn'] = {f'k={k}': top1[f'top1_{s}'] for s, k, _ in settings}
    if 'linear' in protocols:
        train, val = _pick(found, preset.linear)
        size = len(classes), epochs, batch_size, seed
        linear = LinearProbeAccuracy()
        linear.process(None, linear_predictions(train, val, *size))
        result['linear'] = linear.compute_metrics(linear.results)
    if subsets:
        train, val = _pick(found, preset.lowshot, low_shot_features, 'raw_')
        fit = dict(regularization=preset.regularization)
        lowshot = LowShotAccuracy()
        lowshot.process(None, low_shot_predictions(train, val, subsets, **fit))
        result['lowshot'] = _by_subset(subsets, lowshot.results)
    return result


def labelled_sets(
    encoder: Encoder, data_root: str | os.PathLike
) -> dict[str, ImageSet]:
    """Find the training and validation images of :func:`evaluate`.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        data_root (str | os.PathLike): See :func:`evaluate`.

    Returns:
        dict[str, ImageSet]: The sets 'train' and 'val'.

    Raises:
        OSError: If a set has no images, or none of the up to 20 images that
            are tried in it can be read.
        ValueError: If the two sets have different classes, or only one class.
    """
    sets = {
        split: image_set(
            os.path.join(data_root, split), encoder.pipeline, True
        )
        for split in ('train', 'val')
    }
    classes, others = (part.metainfo['classes'] for part in sets.values())
    check_same_classes(classes, others, ('train', 'val'))
    if min(len(classes), len(others)) < 2:
        raise ValueError(
            f'{data_root} needs at least two classes, each with a folder in '
            'train/ and in val/'
        )
    return sets


@callers_numbers()
def evaluate_unlabelled(
    encoder: Encoder,
    images: str | os.PathLike,
    preset: Preset | None = None,
    seed: int = 0,
    num_workers: int | None = None,
    num_images: int = 500,
) -> dict:
    """Measure the agreement of neighbours, which needs no labels.

    The two views of an image should have the same nearest images, see
    :func:`~mmmoca.evaluation.neighbour_agreement`. For RGB encoders,
    whatever their method, the views are drawn as in the paper's training, at
    the encoder's input size. For encoders of grey images or bands, the views
    are cropped, flipped, and changed in brightness and contrast.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        images (str | os.PathLike): Folder of images, at any depth.
        preset (Preset, optional): The preset whose k-NN feature is used.
            Defaults to the encoder's preset.
        seed (int): Seed of the views.
        num_workers (int, optional): See :meth:`Encoder.embed`.
        num_images (int): The largest number of images to use. If there are
            more, evenly spaced ones are used.

    Returns:
        dict: ``agreement``, in percent; and ``unreadable``, the number of
        images that were left out because they cannot be read.

    Raises:
        OSError: If no image can be read.
        ValueError: If there are fewer than three images.
    """
    found = image_set(os.fspath(images), encoder.pipeline)
    found = evenly_spaced(found, num_images).data_list
    loader, seeded = encoder.pipeline[0], dict(type='mmmoca.SeedTransforms')
    kinds = (preset or encoder.preset).knn.split('-')
    views = []
    for number, transforms in enumerate(_views(encoder)):
        pipeline = [loader, seeded, *transforms]
        feats = encoder.embed(
            Images(found, pipeline, 2 * seed + number),
            features=kinds,
            num_workers=num_workers,
            skip_unreadable=True,
        )
        parts = [getattr(feats, kind) for kind in kinds]
        views.append(_unit(torch.cat(parts, dim=1)))
    rows = torch.cat(views, dim=1)
    rows = rows[rows.isfinite().all(dim=1)]
    ids = torch.arange(len(rows))
    agreement = NeighbourAgreement()
    agreement.process(None, neighbour_agreement(FeatureShard(ids, rows, ids)))
    metrics = agreement.compute_metrics(agreement.results)
    unreadable = len(found) - len(rows)
    return dict(agreement=metrics['neighbours'], unreadable=unreadable)


def _views(encoder: Encoder) -> list[list[dict]]:
    """Return the transforms of both views.

    Views of RGB images are those of the paper's appendix C.4.
    """
    config = Config.fromfile(shipped('configs') / VIEWS)
    crop = dict(config.crop, scale=encoder.preprocessing.img_size)
    loader = encoder.pipeline[0]
    grey = str(loader.get('color_type')).startswith('grayscale')
    if grey or short_name(loader) == 'LoadBands':
        jitter = dict(
            type='mmmoca.BandJitter',
            brightness=0.4,
            contrast=0.4,
            per_band=False,
        )
        return [[crop, jitter, config.flip]] * 2
    views = config.view_pipeline1, config.view_pipeline2
    return [[crop, *transforms[1:]] for transforms in views]


def _pick(
    found: list[tuple[ImageSet, dict[str, Tensor]]],
    feature: str,
    scale: Callable[[Tensor], Tensor] = Tensor.float,
    prefix: str = '',
) -> list[FeatureShard]:
    """Return a feature, such as 'cls-avg', of each set of images."""
    kinds = [prefix + part for part in feature.split('-')]
    return [
        FeatureShard(
            torch.arange(len(images)),
            scale(torch.cat([features[kind] for kind in kinds], dim=1)),
            torch.from_numpy(images.get_gt_labels()),
        )
        for images, features in found
    ]


def _unit(feats: Tensor) -> Tensor:
    """L2-normalise the rows, on the GPU if there is one."""
    return F.normalize(feats.to(get_device()))


def _by_subset(
    subsets: dict[str, list[list[int]]], results: list[dict]
) -> list[dict]:
    """Return the low-shot accuracies for each subset."""
    found = set_accuracies(results)
    return [
        dict(
            subset=name,
            images=[len(rows) for rows in sets],
            top1=(top1 := found[f'top1_{name}']).tolist(),
            mean=float(top1.mean()),
            std=float(top1.std()),
        )
        for name, sets in subsets.items()
    ]


def _features(
    encoder: Encoder,
    images: ImageSet,
    cache: str | os.PathLike,
    num_workers: int | None,
) -> tuple[ImageSet, dict[str, Tensor]]:
    """Return the images that can be read, and their features by kind.

    The kinds are [CLS] and the mean patch token, each after and before the
    final norm.
    """
    kinds = 'cls', 'avg', 'raw_cls', 'raw_avg'
    found = Images(images.data_list, encoder.pipeline)
    paths = [found.path(i) for i in range(len(found))]
    name = digest_of([encoder.identity(), list_digest(paths)])
    path = Path(cache) / f'{name}.npy'
    if is_whole(path, (len(found), len(kinds) * encoder.backbone.embed_dims)):
        lacking = np.flatnonzero(np.isnan(np.load(path, 'r')[:, 0]))
        if any(isinstance(found[row], Tensor) for row in lacking):
            path.unlink()  # some can be read now: compute all again
    embed_to_file(
        encoder,
        found,
        path,
        feature='-'.join(kinds),
        num_workers=num_workers,
        skip_unreadable=True,
    )
    rows = torch.from_numpy(np.load(path))
    good = rows[:, 0].isfinite()
    if not good.all():
        rows = rows[good]
        images = images.get_subset(good.nonzero()[:, 0].tolist())
    return images, dict(zip(kinds, rows.chunk(len(kinds), dim=1)))


def _subsets(
    dataset: ImageSet,
    shots: Sequence[int],
    percent: Sequence[float],
    sets: int,
    seed: int,
) -> dict[str, list[list[int]]]:
    """Return the image indices of low-shot sets, by names like '1 shot'."""
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
