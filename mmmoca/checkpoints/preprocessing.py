# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a checkpoint says of its encoder and of the images that it is for."""

from collections.abc import Sequence
from typing import NamedTuple

from mmengine.utils import to_2tuple
from mmpretrain.models.backbones import VisionTransformer
from torch import nn

from .backbone import Backbone
from .errors import CheckpointError
from .names import PROJECTION

# Of RGB images of 8 bits, as MOCA, DINO, iBOT, MAE, MSN and DeiT have them.
_IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
_LOADERS = ('LoadImage', 'LoadImageFromFile', 'LoadBands')
# Arguments of a loader that change its images. Others are neither recorded
# nor taken from a file.
_LOADER_KEYS = (
    'type',
    'color_type',
    'imdecode_backend',
    'to_float32',
    'cut_to_8_bits',
    'channels',
    'channel_axis',
    'nodata',
    'fill',
)


class Preprocessing(NamedTuple):
    """What is done to an image before it enters an encoder.

    Attributes:
        mean (tuple[float, ...]): Of each channel in the order of
            ``channel_order``, in the values of the file: 0 to 255 in images
            of 8 bits.
        std (tuple[float, ...]): Likewise.
        channel_order (str): 'rgb', 'bgr', 'grey', or 'bands' in the order
            of the file.
        img_size (tuple[int, int]): Height and width in pixels.
        resize (int, optional): Length in pixels that the shorter side is
            resized to, before ``img_size`` is cut out of the middle. None:
            the whole image is resized to ``img_size``. Always None if
            ``img_size`` is not square.
        interpolation (str): That of the resizing, 'bicubic' say.
        backend (str): What resizes, 'pillow' or 'cv2'.
        loader (dict): Config of the transform that loads a file.
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


def run_record(config: dict, model: nn.Module) -> dict:
    """What a run records of its encoder whenever it saves it.

    Args:
        config (dict): Config of the run, of plain values.
        model (nn.Module): The run's.

    Returns:
        dict: Of the first ViT of the model, ``num_heads``, ``grid`` (rows
        and columns of patches) and ``preprocessing``: what the config says
        of :class:`Preprocessing`, and ``cropped``, the side of what is cut
        out of an image whose shorter side has ``resize`` pixels. Empty if
        there is no ViT.
    """
    vits = [m for m in model.modules() if isinstance(m, VisionTransformer)]
    if not vits:
        return {}
    channels = vits[0].patch_embed.projection.in_channels
    return dict(
        num_heads=vits[0].arch_settings['num_heads'],
        grid=tuple(vits[0].patch_resolution),
        preprocessing=preprocessing_record(config, channels),
    )


def preprocessing_record(config: dict, channels: int) -> dict:
    """What a config says of :class:`Preprocessing`, as far as it is known.

    Args:
        config (dict): Of plain values.
        channels (int): Of its images.

    Returns:
        dict: See :func:`run_record`.
    """
    pipelines = [
        (config.get(f'{mode}_dataloader') or {}).get('dataset', {})
        for mode in ('val', 'test', 'train')
    ]
    *evaluated, trained = [part.get('pipeline') or [] for part in pipelines]
    # Configs without validation keep the pipeline of one as a variable.
    evaluated = [*evaluated, config.get('test_pipeline')]
    steps = _by_type(next(filter(None, evaluated), []))
    known = _resizing(steps) if steps else {}
    sources = steps or _by_type(trained)
    loader = next((sources[n] for n in _LOADERS if n in sources), {})
    if loader:
        kept = {k: loader[k] for k in _LOADER_KEYS if k in loader}
        known['loader'] = kept
    normalise = config.get('model', {}).get('data_preprocessor')
    normalise = normalise or config.get('data_preprocessor')
    if not normalise:
        return known
    for name, default in (('mean', 0.0), ('std', 1.0)):
        numbers = tuple(normalise.get(name) or [default])
        known[name] = numbers * (channels if len(numbers) == 1 else 1)
    rgb = normalise.get('to_rgb') or normalise.get('bgr_to_rgb')
    # MMPretrain's sets in memory, such as CIFAR10, are RGB.
    rgb = rgb or (steps and not loader and channels == 3)
    # MMCV loads colours as BGR.
    bands = str(loader.get('type')).endswith('LoadBands')
    orders = {} if bands else {1: 'grey', 3: 'bgr'}
    known['channel_order'] = 'rgb' if rgb else orders.get(channels, 'bands')
    known['source'] = 'config'
    return known


def _by_type(pipeline: list[dict]) -> dict[str, dict]:
    return {str(t.get('type')).rpartition('.')[2]: t for t in pipeline}


def _resizing(steps: dict[str, dict]) -> dict:
    """How a pipeline of evaluation resizes, as far as it is known."""
    edge = steps.get('ResizeEdge') or steps.get('ResizeBands') or {}
    resize, crop = steps.get('Resize', {}), steps.get('CenterCrop')
    if crop and isinstance(edge.get('scale'), int):
        sides = dict(resize=edge['scale'])
        sides['cropped'] = to_2tuple(crop['crop_size'])[0]
    elif resize and not (crop or resize.get('keep_ratio')):
        sides = dict(resize=None)
    elif any('Resize' in name or 'Crop' in name for name in steps):
        return {}
    else:  # images have the encoder's size already
        return dict(resize=1, cropped=1)
    return sides | dict(
        interpolation=(edge or resize).get('interpolation', 'bilinear'),
        backend=(edge or resize).get('backend', 'cv2'),
    )


def preprocessing_of(
    backbone: Backbone,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    config: dict | None = None,
) -> Preprocessing:
    """Find out how images are prepared for an encoder.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        mean (Sequence[float], optional): Of each channel, instead of what
            the file records.
        std (Sequence[float], optional): Likewise.
        config (dict, optional): A config of plain values that says it instead
            of the file.

    Returns:
        Preprocessing: As the file records. Else as ImageNet's images for
        encoders of three channels.

    Raises:
        CheckpointError: If the images do not have three channels and the
            file records no mean and std; if the given numbers do not fit; or
            if the patch grid is not known.
    """
    channels = backbone.state_dict[PROJECTION].shape[1]
    img_size = backbone.img_size
    recorded = backbone.record.get('preprocessing') or {}
    if config is not None:
        recorded = preprocessing_record(config, channels)
        if len(recorded.get('mean', ())) != channels or (
            'resize' not in recorded
        ):
            raise CheckpointError(
                'the config does not say how images are prepared: it needs a '
                f'data_preprocessor of {channels} channels, and a validation '
                'that resizes the shorter side and crops, or to one size'
            )
    known = {  # JSON has lists only
        key: tuple(value) if isinstance(value, list) else value
        for key, value in recorded.items()
    }
    if any(len(known.get(k) or ()) != channels for k in ('mean', 'std')):
        # None, or of other images.
        for name in ('mean', 'std', 'channel_order', 'loader', 'source'):
            known.pop(name, None)
    if mean is not None or std is not None:
        mean, std = (() if n is None else tuple(n) for n in (mean, std))
        if not len(mean) == len(std) == channels or min(std) <= 0:
            raise CheckpointError(
                f'mean and std (--mean, --std) need {channels} numbers each, '
                f'those of std above 0, but got {mean} and {std}'
            )
        known |= dict(mean=mean, std=std, source='given')
    elif 'mean' not in known:
        if channels != 3:
            raise CheckpointError(
                f'the checkpoint does not say how images of {channels} '
                'channels are normalised: give their --mean and --std'
            )
        known |= dict(mean=_IMAGENET[0], std=_IMAGENET[1], source='assumed')
    loader = known.get('loader') or dict(type='LoadImageFromFile')
    # Where nothing is recorded, the usual 256 to 224.
    resize, cropped = known.get('resize', 256), known.get('cropped', 224)
    uncropped = resize is None or img_size[0] != img_size[1]
    return Preprocessing(
        mean=known['mean'],
        std=known['std'],
        channel_order=known.get('channel_order')
        or {1: 'grey', 3: 'rgb'}.get(channels, 'bands'),
        img_size=img_size,
        resize=None if uncropped else round(resize * img_size[0] / cropped),
        interpolation=known.get('interpolation', 'bicubic'),
        backend=known.get('backend', 'pillow'),
        loader={k: loader[k] for k in _LOADER_KEYS if k in loader},
        source=known.get('source', 'config'),
    )
