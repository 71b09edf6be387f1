# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Makes and reads this package's record in a checkpoint, ``meta.mmmoca``."""

import math
import re
from numbers import Real

from mmpretrain.models.backbones import VisionTransformer
from torch import nn

from mmmoca.config_parts import preprocessor_of, short_name

# The largest number of patches that a recorded grid may have. It limits the
# memory, because rotary positions are allocated for the whole grid.
MOST_PATCHES = 2**20
# Encoders of these packages can be rebuilt from their weights. The names of
# other classes are recorded as `computed_by`.
_KNOWN = 'mmmoca', 'mmpretrain', 'mmengine', 'torch', 'builtins'
LOADERS = 'LoadImage', 'LoadImageFromFile', 'LoadBands'
# The transforms that a recorded pipeline may contain, and the classes that are
# built for them.
TRANSFORMS = dict(
    LoadImage='mmmoca.LoadImage',
    LoadImageFromFile='mmmoca.LoadImage',
    LoadBands='mmmoca.LoadBands',
    ResizeEdge='mmmoca.ResizeEdge',
    ResizeBands='mmmoca.ResizeBands',
    Resize='mmpretrain.Resize',
    CenterCrop='mmpretrain.CenterCrop',
)
# The recorded arguments of these transforms, with the type of the value, or of
# its items if it is a list. Only arguments that change an image are recorded.
_ARGUMENTS = dict(
    type=str,
    color_type=str,
    imdecode_backend=str,
    to_float32=bool,
    cut_to_8_bits=bool,
    background=int,
    channels=int,
    channel_axis=str,
    nodata=str | Real,
    fill=str | Real,
    scale=int,
    edge=str,
    crop_size=int,
    interpolation=str,
    backend=str,
)
# The other entries of a record that are read, with their types as above.
_ENTRIES = dict(
    mmmoca=dict,
    layout=str,
    num_heads=Real,
    norm_eps=Real,
    grid=int,
    preprocessing=dict,
    pipeline=list,
    mean=Real,
    std=Real,
    channel_order=str,
    computed_by=str,
)
_ANY_SIGN = 'mean', 'nodata', 'fill', 'background'
_LISTS = 'grid', 'mean', 'std'
_MAY_BE_LISTS = 'scale', 'crop_size', 'background'


def record_of(meta: object) -> dict:
    """Return what this package recorded in a checkpoint.

    Args:
        meta (object): ``meta`` of the checkpoint, of any type.

    Returns:
        dict: The record, see :func:`file_record` and :func:`run_record`.
        Empty if there is none.
    """
    record = meta.get('mmmoca') if isinstance(meta, dict) else None
    return record if isinstance(record, dict) else {}


def broken_entry(meta: object) -> str | None:
    """Find an entry of a record that no reader can use.

    Args:
        meta (object): ``meta`` of a checkpoint, of any type.

    Returns:
        str | None: The entry and its value, in words for an error; None if
        all entries can be used.
    """
    if not isinstance(meta, dict):
        return None
    record = record_of(meta)
    images = record.get('preprocessing')
    images = images if isinstance(images, dict) else {}
    parts = [(meta, dict(mmmoca=dict)), (record, _ENTRIES), (images, _ENTRIES)]
    steps = images.get('pipeline') or []
    if isinstance(steps, list | tuple):
        for step in steps:
            if not isinstance(step, dict) or step.keys() - _ARGUMENTS.keys():
                return f'pipeline has {_shown(step)}'
            if short_name(step) not in TRANSFORMS:
                return f'pipeline has {_shown(step.get("type"))}'
            parts.append((step, _ARGUMENTS))
    for part, kinds in parts:
        for key in part.keys() & kinds.keys():
            value = part[key]
            if value is not None and not _is_usable(key, value, kinds[key]):
                return f'{key} is {_shown(value)}'
    return None


def _is_usable(key: str, value: object, kind: type) -> bool:
    if kind in (dict, list):
        return isinstance(value, kind | tuple if kind is list else kind)
    several = isinstance(value, list | tuple)
    if several != (key in _LISTS) and key not in _MAY_BE_LISTS:
        return False
    lowest = -math.inf if key in _ANY_SIGN else 0
    for part in value if several else [value]:
        if not isinstance(part, kind):
            return False
        number = isinstance(part, Real) and not isinstance(part, bool)
        if number and not lowest < part < math.inf:
            return False
    return key != 'grid' or (
        len(value) == 2 and math.prod(value) <= MOST_PATCHES
    )


def _shown(value: object) -> str:
    """Show a number or text; for any other value, show only its type."""
    plain = isinstance(value, str | Real)
    return repr(value)[:80] if plain else type(value).__name__


def run_record(config: dict, model: nn.Module) -> dict:
    """Return what a run records about its encoder in each checkpoint.

    Args:
        config (dict): Config of the run, as plain values.
        model (nn.Module): Model of the run.

    Returns:
        dict: ``num_heads``, ``grid`` (rows and columns of patches) and
        ``preprocessing`` (see :func:`images_record`) of the model's first
        ViT. If the user's own classes compute its features, ``computed_by``
        has their names. Empty if there is no ViT.
    """
    vits = [m for m in model.modules() if isinstance(m, VisionTransformer)]
    if not vits:
        return {}
    channels = vits[0].patch_embed.projection.in_channels
    record = dict(
        num_heads=vits[0].arch_settings['num_heads'],
        grid=tuple(vits[0].patch_resolution),
        preprocessing=images_record(config, channels, vits[0].img_size),
    )
    own = [
        kind.__name__
        for kind in (*type(vits[0]).__mro__, *type(model).__mro__)
        if kind.__module__.partition('.')[0] not in _KNOWN
        and (issubclass(kind, VisionTransformer) or _embeds(kind))
    ]
    return record | (dict(computed_by=', '.join(own)) if own else {})


def _embeds(kind: type) -> bool:
    return bool({'embed_image', 'extract_feat'} & vars(kind).keys())


def images_record(
    config: dict, channels: int, img_size: tuple[int, int]
) -> dict:
    """Return what a config says about how images are prepared.

    Args:
        config (dict): A config, as plain values.
        channels (int): Number of channels of the images.
        img_size (tuple[int, int]): Height and width of the encoder's images.

    Returns:
        dict: ``pipeline``, ``mean``, ``std``, ``channel_order`` and
        ``source``, see :class:`Preprocessing`. The pipeline has the transforms
        for evaluation that load, resize and crop. If they resize in a way that
        is not supported, it has only the loader. Entries about which the
        config says nothing are left out.
    """
    *evaluated, trained = (
        ((config.get(f'{mode}_dataloader') or {}).get('dataset') or {}).get(
            'pipeline'
        )
        for mode in ('val', 'test', 'train')
    )
    # Configs without validation may define `test_pipeline` for evaluation.
    evaluated = [*evaluated, config.get('test_pipeline')]
    steps = next(filter(None, evaluated), None)
    loaders = _loaders(steps or trained)[:1]
    for other in _loaders(trained) if loaders else ():
        # Images that need an option in training, such as cut_to_8_bits, need
        # it everywhere.
        if _reads_bands(other) == _reads_bands(loaders[0]):
            loaders = [other | loaders[0]]
    pipeline = loaders + (_resizing(steps, img_size) if steps else [])
    known: dict = dict(
        pipeline=[
            {k: step[k] for k in _ARGUMENTS if k in step} for step in pipeline
        ]
    )
    if not (normalise := preprocessor_of(config)):
        return known
    for name, default in (('mean', 0.0), ('std', 1.0)):
        numbers = tuple(normalise.get(name) or [default])
        known[name] = numbers * (channels if len(numbers) == 1 else 1)
    rgb = normalise.get('to_rgb') or normalise.get('bgr_to_rgb')
    # mmpretrain's data sets in memory, such as CIFAR10, are RGB.
    rgb = rgb or (steps and not loaders and channels == 3)
    # MMCV loads colour images as BGR.
    bands = any(map(_reads_bands, loaders))
    orders = {} if bands else {1: 'grey', 3: 'bgr'}
    known['channel_order'] = 'rgb' if rgb else orders.get(channels, 'bands')
    known['source'] = 'config'
    return known


def _loaders(steps: list[dict] | None) -> list[dict]:
    return [step for step in steps or () if short_name(step) in LOADERS]


def _reads_bands(loader: dict) -> bool:
    return short_name(loader) == 'LoadBands'


def normalisation(
    images: dict,
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and std of each channel, in RGB order for colour images.

    Args:
        images (dict): What :func:`images_record` returned.

    Returns:
        tuple[tuple[float, ...], tuple[float, ...]] | None: Mean and std; None
        if the config does not normalise.
    """
    mean, std = images.get('mean'), images.get('std')
    if not mean or not std:
        return None
    step = -1 if images.get('channel_order') == 'bgr' else 1
    return mean[::step], std[::step]


def other_normalisation(saved: dict, own: dict) -> str | None:
    """Compare the normalisation of a checkpoint's images with a run's.

    Args:
        saved (dict): Record of the checkpoint, see :func:`record_of`.
        own (dict): Record of the run, see :func:`run_record`.

    Returns:
        str | None: A sentence that says how they differ; None if all numbers
        agree to within 2 %, if a record has no mean and std, or if the numbers
        of channels differ.
    """
    pairs = [
        normalisation(record.get('preprocessing') or {})
        for record in (saved, own)
    ]
    if None in pairs:
        return None
    theirs, ours = ([*mean, *std] for mean, std in pairs)
    if len(theirs) != len(ours) or all(
        math.isclose(a, b, rel_tol=0.02) for a, b in zip(theirs, ours)
    ):
        return None
    texts = (
        ' and std '.join(', '.join(f'{x:.4g}' for x in n) for n in numbers)
        for numbers in pairs
    )
    return (
        'its images were normalised with mean {}, and those of this config '
        'with mean {} (colours in RGB order): set '
        'model.data_preprocessor.mean and std'
    ).format(*texts)


def other_feature(saved: dict, config: dict) -> str | None:
    """Compare a checkpoint's feature with the one that a config evaluates.

    Args:
        saved (dict): Record of the checkpoint, see :func:`record_of`.
        config (dict): Config of the evaluation, as plain values.

    Returns:
        str | None: A sentence that says how they differ; None if they are the
        same, or if one of them is not known.
    """
    model = config.get('model') or {}
    parts = model.get('backbone'), model.get('neck')
    backbone, neck = (p if isinstance(p, dict) else {} for p in parts)
    kind = backbone.get('out_type'), neck.get('type')
    features = {('featmap', 'GlobalAveragePooling'): 'avg'}
    own = features.get(kind) or ('cls' if kind[0] == 'cls_token' else None)
    other = saved.get('feature')
    if None in (own, other) or own == other:
        return None
    how = dict(
        cls='model.backbone.out_type=cls_token model.neck=None',
        avg='model.backbone.out_type=featmap '
        'model.neck.type=GlobalAveragePooling',
    )
    return (
        f'its run trained and evaluated [{other.upper()}], and this config '
        f'evaluates [{own.upper()}]: to get the former, write {how[other]}'
    )


def _resizing(steps: list[dict], img_size: tuple[int, int]) -> list[dict]:
    """Return the transforms that resize and crop, or [] if not supported."""
    found = [s for s in steps if re.search('Resize|Crop', short_name(s))]
    if not found:  # images have the encoder's size already
        return usual_resizing(img_size[0], img_size[0])
    first, names = found[0], '+'.join(map(short_name, found))
    cropped = names in ('ResizeEdge+CenterCrop', 'ResizeBands+CenterCrop')
    edge = isinstance(first.get('scale'), int)
    whole = names == 'Resize' or (names == 'ResizeBands' and not edge)
    known = (cropped and edge) or (whole and not first.get('keep_ratio'))
    return found if known else []


def usual_resizing(scale: int, crop_size: int) -> list[dict]:
    """Return the transforms that resize the shorter side, and crop."""
    return [
        dict(
            type='ResizeEdge',
            scale=scale,
            interpolation='bicubic',
            backend='pillow',
        ),
        dict(type='CenterCrop', crop_size=crop_size),
    ]
