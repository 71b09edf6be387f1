# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a checkpoint says of its encoder, as ``meta.mmmoca``."""

import os
from collections import deque
from collections.abc import Iterator

from mmengine.utils import to_2tuple
from mmpretrain.models.backbones import VisionTransformer
from torch import nn

from mmmoca.version import __version__

__all__ = ['file_record', 'record_of', 'run_record']

_LOADERS = ('LoadImage', 'LoadImageFromFile', 'LoadBands')
_PLAIN = (str, int, float, list, tuple, type(None))


def record_of(meta: object) -> dict:
    """What this package wrote about a file.

    Args:
        meta (object): ``meta`` of the checkpoint, whatever it holds.

    Returns:
        dict: See :func:`file_record` and :func:`run_record`. Empty where
        there is none.
    """
    record = meta.get('mmmoca') if isinstance(meta, dict) else None
    return record if isinstance(record, dict) else {}


def file_record(
    source: str | os.PathLike,
    layout: str,
    which: str,
    grid: tuple[int, int] | None,
    feature: str | None = None,
) -> dict:
    """What is recorded of a file that is made from another.

    Args:
        source (str | os.PathLike): Path of the file it was read from.
        layout (str): Its layout, see :class:`Backbone`.
        which (str): The encoder, see :class:`Backbone`; 'full' for a model.
        grid (Tuple[int, int], optional): Rows and columns of patches.
        feature (str, optional): What it is judged by, see :class:`Backbone`.

    Returns:
        dict: These, with the file's name and the version of this package.
    """
    return dict(
        source=os.path.basename(source),
        layout=layout,
        which=which,
        grid=grid,
        feature=feature,
        version=__version__,
    )


def run_record(config: dict, model: nn.Module) -> dict:
    """What a run records of its encoder whenever it saves it.

    Args:
        config (dict): Config of the run, of plain values.
        model (nn.Module): The run's.

    Returns:
        dict: Of the first ViT of the model, ``num_heads``, ``grid`` (rows
        and columns of patches) and ``preprocessing``: what of
        :class:`Preprocessing` the config says, and ``cropped``, the side of
        what is cut out of an image whose shorter side has ``resize`` pixels.
        Empty where there is no ViT.
    """
    vits = (m for m in model.modules() if isinstance(m, VisionTransformer))
    vit = next(vits, None)
    if vit is None:
        return {}
    channels = vit.patch_embed.projection.in_channels
    return dict(
        num_heads=vit.arch_settings['num_heads'],
        grid=tuple(vit.patch_resolution),
        preprocessing=_preprocessing(config, channels),
    )


def _preprocessing(config: dict, channels: int) -> dict:
    known, in_memory = _loading(config)
    normalise = config.get('model', {}).get('data_preprocessor')
    normalise = normalise or config.get('data_preprocessor')
    if not normalise:
        return known
    for name, default in (('mean', 0.0), ('std', 1.0)):
        numbers = tuple(normalise.get(name) or [default])
        known[name] = numbers * (channels if len(numbers) == 1 else 1)
    to_rgb = normalise.get('to_rgb') or normalise.get('bgr_to_rgb')
    # MMPretrain's sets in memory, such as CIFAR10, are RGB.
    to_rgb = to_rgb or (in_memory and channels == 3)
    known['channel_order'] = _order(to_rgb, channels, known.get('loader', {}))
    known['source'] = 'config'
    return known


def _order(to_rgb: bool, channels: int, loader: dict) -> str:
    if to_rgb:
        return 'rgb'
    as_in_file = (
        loader.get('type', '').endswith('LoadBands')
        or loader.get('imdecode_backend') == 'tifffile'
    )
    if as_in_file:
        return 'bands'
    # MMCV loads colours as BGR.
    return {1: 'grey', 3: 'bgr'}.get(channels, 'bands')


def _loading(config: dict) -> tuple[dict, bool]:
    """How images are loaded and resized where a run evaluates them.

    Returns:
        Tuple[dict, bool]: As far as it is known, and whether the data set has
        its images in memory.
    """
    evaluated = [
        steps
        for name in ('val_dataloader', 'test_dataloader')
        for steps in _pipelines(config.get(name) or {})
    ]
    if evaluated:
        return _settings_of(evaluated[0], evaluated=True)
    # Evaluation crops the centre, training anywhere.
    others = sorted(
        filter(_loader_of, _pipelines(config)),
        key=lambda steps: 'CenterCrop' not in steps,
    )
    return _settings_of(others[0], False) if others else ({}, False)


def _pipelines(config: dict) -> Iterator[dict[str, dict]]:
    """The transforms in each list of them by type, the outermost first."""
    parts = deque([config])
    while parts:
        part = parts.popleft()
        inner = list(part.values() if isinstance(part, dict) else part)
        parts.extend(p for p in inner if isinstance(p, (dict, list)))
        if inner and isinstance(part, list):
            types = [p.get('type') for p in inner if isinstance(p, dict)]
            if len(types) == len(inner) and all(
                isinstance(kind, str) for kind in types
            ):
                names = (kind.rpartition('.')[2] for kind in types)
                yield dict(zip(names, inner))


def _loader_of(steps: dict[str, dict]) -> dict | None:
    return next((s for name, s in steps.items() if name in _LOADERS), None)


def _settings_of(steps: dict[str, dict], evaluated: bool) -> tuple[dict, bool]:
    known, loader = {}, _loader_of(steps)
    if loader:
        known['loader'] = {
            key: value
            for key, value in loader.items()
            if key != 'backend_args' and isinstance(value, _PLAIN)
        }
    edge = steps.get('ResizeEdge') or steps.get('ResizeBands') or {}
    whole = steps.get('Resize', {})
    crop = steps.get('CenterCrop', {}).get('crop_size')
    sides = edge.get('scale'), to_2tuple(crop)[0]
    resized = {}
    if all(isinstance(side, int) and side > 0 for side in sides):
        resized, known['resize'], known['cropped'] = edge, *sides
    elif evaluated and whole and not (crop or whole.get('keep_ratio')):
        resized, known['resize'] = whole, None
    elif evaluated and not any('Resize' in n or 'Crop' in n for n in steps):
        # Images have the encoder's size already.
        known['resize'] = known['cropped'] = 1
    if resized:
        known['interpolation'] = resized.get('interpolation', 'bilinear')
        known['backend'] = resized.get('backend', 'cv2')
    return known, loader is None
