# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a checkpoint says of the images that it is for."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mmengine.utils import to_2tuple

from .layouts import Backbone
from .plain_vit import PROJECTION
from .reading import CheckpointError
from .recorded_config import (
    parts_of,
    record_of,
    recorded_backbone,
    recorded_config,
)

__all__ = ['Preprocessing', 'preprocessing_of', 'recorded_preprocessing']

# Of RGB images of 8 bits, as MOCA, DINO, iBOT, MAE, MSN and DeiT have them.
_IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
_LOADERS = ('LoadImage', 'LoadImageFromFile', 'LoadBands')
_RECORDED = dict(
    channel_order=str,
    resize=int,
    cropped=int,
    interpolation=str,
    backend=str,
    loader=dict,
    source=str,
)


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
        """What :func:`recorded_preprocessing` gives of a converted file."""
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
        Preprocessing: As the config in the file says, or the record of the
        converter that wrote it. Else as ImageNet's images for encoders of
        three channels.

    Raises:
        CheckpointError: If nothing is recorded of images of other channels
            than three, the numbers given do not fit, or the patch grid is
            not known.
    """
    channels = backbone.state_dict[PROJECTION].shape[1]
    img_size = _img_size(backbone)
    known = recorded_preprocessing(backbone.meta)
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


def recorded_preprocessing(meta: Mapping) -> dict:
    """What a file says of its images, as far as it does.

    Args:
        meta (Mapping): ``meta`` of the checkpoint.

    Returns:
        dict: Plain values, as the record of a converter has them; what is in
        :class:`Preprocessing` but the image size, and ``cropped``, the side
        of what is cut out of an image whose shorter side has ``resize``
        pixels; ``resize`` is None where nothing is.
    """
    return _from_record(meta) or _from_config(meta)


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


def _from_record(meta: Mapping) -> dict:
    """What a converter copied from the file that it read."""
    known = record_of(meta).get('preprocessing')
    if not isinstance(known, dict):
        return {}
    # JSON has lists only.
    found = {name: _numbers(known.get(name)) for name in ('mean', 'std')}
    if known.get('resize', 0) is None:
        found['resize'] = None
    return found | {
        name: known[name]
        for name, kind in _RECORDED.items()
        if isinstance(known.get(name), kind) and known[name]
    }


def _from_config(meta: Mapping) -> dict:
    """What the config of a run says, as far as it does."""
    config = recorded_config(meta)
    known, in_memory = _loading(config)
    model = config.get('model')
    normalise = isinstance(model, dict) and model.get('data_preprocessor')
    normalise = normalise or config.get('data_preprocessor')
    if not isinstance(normalise, dict):
        return known
    channels = recorded_backbone(meta).get('in_channels', 3)
    for name, default in (('mean', 0.0), ('std', 1.0)):
        numbers = _numbers(normalise.get(name) or [default])
        known[name] = numbers * (channels if len(numbers) == 1 else 1)
    to_rgb = normalise.get('to_rgb') or normalise.get('bgr_to_rgb')
    # MMPretrain's sets in memory, such as CIFAR10, are RGB.
    to_rgb = to_rgb or (in_memory and channels == 3)
    known['channel_order'] = _order(to_rgb, channels, known.get('loader', {}))
    known['source'] = 'config'
    return known


def _numbers(values: object) -> tuple[float, ...]:
    if not isinstance(values, (list, tuple)):
        return ()
    numbers = tuple(v for v in values if isinstance(v, (int, float)))
    return numbers if len(numbers) == len(values) else ()


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
        if isinstance(config.get(name), dict)
        for steps in _pipelines(config[name])
    ]
    if evaluated:
        return _settings_of(evaluated[0], evaluated=True)
    # Evaluation crops the centre, training anywhere.
    others = sorted(
        filter(_loader_of, _pipelines(config)),
        key=lambda steps: 'CenterCrop' not in steps,
    )
    return _settings_of(others[0], False) if others else ({}, False)


def _pipelines(config: dict) -> list[dict[str, dict]]:
    """The transforms in each list of them, by type."""
    return [
        {step['type'].rpartition('.')[2]: step for step in part}
        for part in parts_of(config)
        if isinstance(part, list)
        and part
        and all(
            isinstance(step, dict) and isinstance(step.get('type'), str)
            for step in part
        )
    ]


def _loader_of(steps: dict[str, dict]) -> dict | None:
    return next((s for name, s in steps.items() if name in _LOADERS), None)


def _settings_of(steps: dict[str, dict], evaluated: bool) -> tuple[dict, bool]:
    known, loader = {}, _loader_of(steps)
    if loader:
        known['loader'] = {
            k: v for k, v in loader.items() if k != 'backend_args'
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
