# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a checkpoint says of the images that it is for."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .layouts import Backbone
from .plain_vit import PROJECTION
from .reading import CheckpointError
from .records import record_of

__all__ = ['Preprocessing', 'preprocessing_of']

# Of RGB images of 8 bits, as MOCA, DINO, iBOT, MAE, MSN and DeiT have them.
_IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))


class Preprocessing(NamedTuple):
    """What is done to an image before it enters an encoder.

    Attributes:
        mean (Tuple[float, ...]): Of each channel in the order of
            ``channel_order``, in the values of the file: 0 to 255 in images
            of 8 bits.
        std (Tuple[float, ...]): Likewise.
        channel_order (str): 'rgb', 'bgr', 'grey', or 'bands' in the order
            of the file.
        img_size (Tuple[int, int]): Height and width in pixels.
        resize (int, optional): Length in pixels that the shorter side is
            resized to, before ``img_size`` is cut out of the middle. None
            where the whole image is resized to ``img_size``, as always if
            that is not square.
        interpolation (str): That of the resizing, 'bicubic' say.
        backend (str): What resizes, 'pillow' or 'cv2'.
        loader (Dict): Config of the transform that loads a file.
        source (str): Where mean and std are from: 'config' (of the run that
            made the checkpoint), 'given', or 'assumed', ImageNet's.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    channel_order: str
    img_size: tuple[int, int]
    resize: int | None
    interpolation: str
    backend: str
    loader: dict
    source: str

    def as_record(self) -> dict:
        """What a file of this encoder records, see :func:`run_record`."""
        record = self._asdict()
        del record['img_size']
        if self.resize is not None:
            record['cropped'] = self.img_size[0]
        return record


def preprocessing_of(
    backbone: Backbone,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Preprocessing:
    """Find out how images are prepared for an encoder.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        mean (Sequence[float], optional): Of each channel, in the place of
            what the file records.
        std (Sequence[float], optional): Likewise.

    Returns:
        Preprocessing: As the file records. Else as ImageNet's images for
        encoders of three channels.

    Raises:
        CheckpointError: If nothing is recorded of images of other channels
            than three, the numbers given do not fit, or the patch grid is
            not known.
    """
    channels = backbone.state_dict[PROJECTION].shape[1]
    img_size = _img_size(backbone)
    known = _recorded(backbone.meta)
    if any(len(known.get(k, ())) != channels for k in ('mean', 'std')):
        # None, or of other images.
        for name in ('mean', 'std', 'channel_order', 'loader', 'source'):
            known.pop(name, None)
    if (mean, std) != (None, None):
        known |= _given(mean, std, channels)
    elif 'mean' not in known:
        known |= _assumed(channels)
    # Where nothing is recorded, the usual 256 to 224.
    resize, cropped = known.pop('resize', 256), known.pop('cropped', 224)
    whole = resize is None or img_size[0] != img_size[1]
    orders = {1: 'grey', 3: 'rgb'}
    return Preprocessing(
        **dict(
            channel_order=orders.get(channels, 'bands'),
            interpolation='bicubic',
            backend='pillow',
            loader=dict(type='LoadImageFromFile'),
            source='config',
        )
        | known,
        img_size=img_size,
        resize=None if whole else round(resize * img_size[0] / cropped),
    )


def _recorded(meta: Mapping) -> dict:
    known = record_of(meta).get('preprocessing') or {}
    # JSON has lists only.
    return {
        k: tuple(v) if isinstance(v, list) else v for k, v in known.items()
    }


def _img_size(backbone: Backbone) -> tuple[int, int]:
    if backbone.grid is None:
        raise CheckpointError(
            f'the checkpoint has {backbone.state_dict["pos_embed"].shape[1]} '
            'positions, [CLS] among them, that are no square, and records no '
            'grid: give the patch rows and columns (--source-grid H W)'
        )
    patch = backbone.state_dict[PROJECTION].shape[2:]
    return tuple(n * p for n, p in zip(backbone.grid, patch))


def _given(
    mean: Sequence[float] | None, std: Sequence[float] | None, channels: int
) -> dict:
    if any(len(numbers or ()) != channels for numbers in (mean, std)):
        raise CheckpointError(
            f'mean and std (--mean, --std) need {channels} numbers each, one '
            f'for each channel, but got {mean} and {std}'
        )
    if min(std) <= 0:
        raise CheckpointError(f'std (--std) must be above 0 but got {std}')
    return dict(mean=tuple(mean), std=tuple(std), source='given')


def _assumed(channels: int) -> dict:
    if channels != 3:
        raise CheckpointError(
            f'the checkpoint is of images of {channels} channels, and does '
            'not say by which mean and std they were normalised: give both, '
            f'{channels} numbers each (--mean, --std)'
        )
    return dict(mean=_IMAGENET[0], std=_IMAGENET[1], source='assumed')
