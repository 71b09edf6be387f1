# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds out how images are prepared for an encoder."""

from collections.abc import Sequence
from typing import NamedTuple

from mmengine.utils import to_2tuple

from mmmoca.config_parts import short_name

from .backbone import Backbone
from .errors import CheckpointError
from .names import PROJECTION
from .record import (
    LOADERS,
    TRANSFORMS,
    images_record,
    usual_resizing,
)

# Mean and std of ImageNet, for 8-bit RGB images, as MOCA, DINO, iBOT, MAE, MSN
# and DeiT use them.
_IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))


class Preprocessing(NamedTuple):
    """The steps that turn an image into the input of an encoder.

    Attributes:
        pipeline (tuple[dict, ...]): Configs of the transforms: loading,
            resizing, and cropping unless the whole image is resized.
        mean (tuple[float, ...]): Mean of each channel, in the order of
            ``channel_order`` and in pixel values of the image file: 0 to 255
            for 8-bit images.
        std (tuple[float, ...]): Standard deviation of each channel, in the
            same order and unit.
        channel_order (str): 'rgb', 'bgr', 'grey', or 'bands' (the order
            in the image file).
        img_size (tuple[int, int]): Height and width in pixels of the
            encoder's input.
        source (str): Where mean and std come from: 'config' (a config, or
            the record of one in the checkpoint), 'given' (by the caller), or
            'assumed' (ImageNet's).
    """

    pipeline: tuple[dict, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    channel_order: str
    img_size: tuple[int, int]
    source: str

    @property
    def resize(self) -> int | None:
        """Int | None: Length in pixels that the shorter side is resized to.

        None if the whole image is resized to ``img_size``.
        """
        scale = self.pipeline[1]['scale']
        return scale if isinstance(scale, int) else None

    @property
    def interpolation(self) -> str:
        """str: Interpolation of the resizing, such as 'bicubic'."""
        return self.pipeline[1].get('interpolation', 'bilinear')


def preprocessing_of(
    backbone: Backbone,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    config: dict | None = None,
) -> Preprocessing:
    """Find out how images are prepared for an encoder.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        mean (Sequence[float], optional): Mean of each channel, instead of the
            recorded one. Needs ``std``.
        std (Sequence[float], optional): Standard deviation of each channel,
            instead of the recorded one. Needs ``mean``.
        config (dict, optional): A config, as plain values, whose
            preprocessing replaces what the file records.

    Returns:
        Preprocessing: The preprocessing that is given or that the file
        records. Without mean and std, encoders of three channels get
        ImageNet's.

    Raises:
        CheckpointError: If mean and std are unknown and the images do not
            have three channels; if the given mean and std cannot be used; if
            the config does not say how images are prepared; or if the patch
            grid is unknown.
    """
    channels = backbone.state_dict[PROJECTION].shape[1]
    known = dict(backbone.record.get('preprocessing') or {})
    if config is not None:
        known = images_record(config, channels, backbone.img_size)
        if len(known.get('mean', ())) != channels or not _split(known)[1]:
            raise CheckpointError(
                'the config does not say how images are prepared: it needs a '
                f'data_preprocessor for {channels} channels, and a validation '
                'pipeline that resizes the shorter side and crops, or that '
                'resizes to one size'
            )
    loader, sizing = _split(known)
    if any(len(known.get(k) or ()) != channels for k in ('mean', 'std')):
        # Mean and std are missing, or have another number of channels.
        loader, known = {}, {}
    known |= _given(mean, std, channels) or _assumed(known, channels)
    order = known.get('channel_order')
    order = order or {1: 'grey', 3: 'rgb'}.get(channels, 'bands')
    if not loader:
        kind = 'LoadBands' if order == 'bands' else 'LoadImage'
        loader = dict(type=kind)
    if short_name(loader) == 'LoadBands':
        loader = dict(channels=channels) | loader
    elif order == 'grey':
        loader = dict(color_type='grayscale') | loader
    steps = [loader, *_fitted(loader, sizing, backbone.img_size)]
    return Preprocessing(
        # Names in a file can only select classes of this table.
        tuple(dict(s, type=TRANSFORMS[short_name(s)]) for s in steps),
        tuple(known['mean']),
        tuple(known['std']),
        order,
        backbone.img_size,
        known.get('source') or 'config',
    )


def _given(
    mean: Sequence[float] | None, std: Sequence[float] | None, channels: int
) -> dict:
    """Return the mean and std that the caller gives, or {}."""
    if mean is None and std is None:
        return {}
    lists = [tuple(n) if hasattr(n, '__len__') else () for n in (mean, std)]
    if [*map(len, lists)] != [channels] * 2 or min(lists[1]) <= 0:
        raise CheckpointError(
            f'mean and std (--mean, --std) need {channels} numbers each, '
            f'those of std above 0, but got {mean} and {std}'
        )
    return dict(mean=lists[0], std=lists[1], source='given')


def _assumed(known: dict, channels: int) -> dict:
    """Return ImageNet's mean and std if none are recorded, otherwise {}."""
    if 'mean' in known:
        return {}
    if channels != 3:
        raise CheckpointError(
            f'the checkpoint does not say how images of {channels} '
            'channels are normalised: give their --mean and --std'
        )
    return dict(mean=_IMAGENET[0], std=_IMAGENET[1], source='assumed')


def _split(record: dict) -> tuple[dict, list[dict]]:
    """Return the recorded loader, or {}, and the transforms after it."""
    steps = [dict(step) for step in record.get('pipeline') or ()]
    loads = bool(steps) and short_name(steps[0]) in LOADERS
    return (steps[0], steps[1:]) if loads else ({}, steps)


def _fitted(
    loader: dict, sizing: list[dict], img_size: tuple[int, int]
) -> list[dict]:
    """Return the transforms that resize and crop to the encoder's input size.

    If none are recorded, the shorter side is resized to 256 / 224 of the input
    size, and the centre is cropped. If the encoder's input is not square, the
    whole image is resized to the input size.
    """
    height, width = img_size
    resize, *crop = sizing or usual_resizing(256, 224)
    resize = dict(resize)
    cuts = bool(crop) and height == width
    if cuts:
        side = to_2tuple(crop[0]['crop_size'])[0]
        # The resized image must cover the crop.
        resize['scale'] = max(round(resize['scale'] * height / side), height)
        crop = [dict(type='CenterCrop', crop_size=(height, width))]
    else:
        resize['scale'] = (width, height)
    if short_name(loader) == 'LoadBands' or loader.get('to_float32'):
        resize['type'] = 'ResizeBands'
        resize.pop('backend', None)
    else:
        resize['type'] = 'ResizeEdge' if cuts else 'Resize'
        resize.setdefault('backend', 'cv2')
    if not cuts:
        resize.pop('edge', None)
    return [resize, *(crop if cuts else [])]
