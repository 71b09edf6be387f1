# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The CPU's transforms of a view as operations on batches.

Each gets uniform random numbers instead of drawing them, so that the result is
a pure function of an image and its row of numbers.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from mmcv.transforms import BaseTransform
from mmengine.registry import DefaultScope
from torch import Tensor

from mmmoca.registry import TRANSFORMS

from . import functional as F

# The arguments are images and, for each image, a row of uniform numbers.
Function = Callable[[Tensor, Tensor], Tensor]


class Operation(NamedTuple):
    """A random change of images, and how many numbers an image needs."""

    function: Function
    numbers: int


class View:
    """Makes a view of each image of a batch.

    Args:
        transforms (Sequence[dict]): Configs of the transforms, as for
            ``MultiView``: first ``mmmoca.RandomResizedCrop``, bilinear; then
            any of ``mmmoca.ColorJitter``, ``mmmoca.RandomGrayscale``,
            ``mmmoca.GaussianBlur``, ``Solarize``, ``RandomFlip`` and
            ``RandomApply`` of these.

    Attributes:
        numbers (int): How many uniform numbers an image needs.

    Raises:
        ValueError: If the transforms or their order are not as described, or
            if a transform or this class does not support an argument.
    """

    def __init__(self, transforms: Sequence[dict]) -> None:
        built = [*map(_build, transforms)]
        self.crop = built[0] if built else None
        if type(self.crop) is not TRANSFORMS.get('mmmoca.RandomResizedCrop'):
            raise ValueError(
                'a view must begin with mmmoca.RandomResizedCrop, which '
                'gives all images of a batch one size, but begins with '
                f'{_name(self.crop)}'
            )
        if self.crop.interpolation != 'bilinear':
            raise ValueError(
                "write RandomResizedCrop.interpolation='bilinear', not "
                f'{self.crop.interpolation!r}, which only the CPU can do'
            )
        changes = _chain([*map(_operation, built[1:])])
        self.change = changes.function
        self.crop_numbers = 2 * self.crop.max_attempts + 2
        self.numbers = self.crop_numbers + changes.numbers

    def make(self, canvases: Tensor, sizes: Tensor, uniform: Tensor) -> Tensor:
        """Make the views.

        Args:
            canvases (Tensor): Images with padding at the bottom and on the
                right, (N, H, W, C), uint8.
            sizes (Tensor): Height and width of each without padding, (N, 2).
            uniform (Tensor): Numbers from [0, 1), (N, ``numbers``).

        Returns:
            Tensor: Whole numbers from 0 to 255 in float32, (N, C, *scale),
            with the crop's ``scale``.
        """
        uniform, rest = uniform.tensor_split((self.crop_numbers,), dim=1)
        boxes = F.draw_boxes(
            sizes,
            uniform,
            self.crop.crop_ratio_range,
            self.crop.aspect_ratio_range,
        )
        # float16 takes half the time and memory on GPUs, but is slow on CPUs.
        dtype = torch.float16 if canvases.is_cuda else torch.float32
        images = F.resize_boxes(canvases, boxes, self.crop.scale, dtype)
        return self.change(images, rest)


def _build(cfg: dict) -> BaseTransform:
    """Build the CPU's transform, which checks and completes its arguments."""
    # Without a current scope, names are looked up in mmpretrain, the scope of
    # the configs.
    scope = DefaultScope.get_current_instance()
    name = scope.scope_name if scope else 'mmpretrain'
    with DefaultScope.overwrite_default_scope(name):
        return TRANSFORMS.build(cfg)


def _name(transform: BaseTransform) -> str:
    return f'{type(transform).__name__} of {type(transform).__module__}'


def _operation(transform: BaseTransform) -> Operation:
    """Turn a transform and its probability, if any, into an operation."""
    for name, make in _MAKERS.items():
        if type(transform) is TRANSFORMS.get(name):
            prob = getattr(transform, 'prob', None)
            made = make(transform)
            return made if prob is None else _sometimes(prob, made)
    raise ValueError(
        f'{_name(transform)} is not among the transforms that can be done on '
        f'batches: {", ".join(_MAKERS)}; use one of them, or make the views '
        "on the CPU, with model.data_preprocessor.type='mmmoca."
        "ViewsDataPreprocessor' and with MultiView in train_pipeline"
    )


def _chain(operations: Sequence[Operation]) -> Operation:
    """Chain operations, one after the other."""
    numbers = [operation.numbers for operation in operations]

    def run(images: Tensor, uniform: Tensor) -> Tensor:
        parts = uniform.split(numbers, dim=1)
        for operation, part in zip(operations, parts):
            images = operation.function(images, part)
        return images

    return Operation(run, sum(numbers))


def _sometimes(prob: float, operation: Operation) -> Operation:
    """Apply an operation to each image with a probability."""

    def run(images: Tensor, uniform: Tensor) -> Tensor:
        changed = operation.function(images, uniform[:, 1:])
        chosen = (uniform[:, 0] < prob).view(-1, 1, 1, 1)
        return torch.where(chosen, changed, images)

    return Operation(run, 1 + operation.numbers)


def _random_apply(transform: BaseTransform) -> Operation:
    return _chain([*map(_operation, transform)])


def _jitter(transform: BaseTransform) -> Operation:
    names = ('brightness', 'contrast', 'saturation')
    ranges = [getattr(transform, name) or (1.0, 1.0) for name in names]
    hue_range = transform.hue

    def run(images: Tensor, uniform: Tensor) -> Tensor:
        order = uniform[:, :4].argsort(dim=1)
        factors = [
            F.stretch(uniform[:, 4 + i], *ends)
            for i, ends in enumerate(ranges)
        ]
        hue = hue_range and F.stretch(uniform[:, 7], *hue_range)
        return F.jitter(images, order, torch.stack(factors, dim=1), hue)

    return Operation(run, 8)


def _grayscale(transform: BaseTransform) -> Operation:
    return Operation(lambda x, _: F.luminance(x).expand_as(x), 0)


def _blur(transform: BaseTransform) -> Operation:
    fixed = transform.radius
    if fixed is None and transform.magnitude_std != 'inf':
        raise ValueError(
            "write magnitude_std='inf' or a radius in GaussianBlur"
        )
    ends = transform.magnitude_range if fixed is None else (fixed, fixed)

    def run(images: Tensor, uniform: Tensor) -> Tensor:
        sigma = F.stretch(uniform[:, 0], *ends)
        return F.gaussian_blur(images, sigma, max(ends))

    return Operation(run, 1)


def _solarize(transform: BaseTransform) -> Operation:
    return Operation(
        lambda x, _: torch.where(x < transform.thr, x, 255 - x), 0
    )


def _flip(transform: BaseTransform) -> Operation:
    dims = dict(horizontal=(-1,), vertical=(-2,)).get(str(transform.direction))
    if dims is None:
        raise ValueError(
            "write direction='horizontal' or 'vertical' in RandomFlip, not "
            f'{transform.direction!r}'
        )
    return Operation(lambda x, _: x.flip(dims), 0)


_MAKERS = {
    'RandomApply': _random_apply,
    'mmmoca.ColorJitter': _jitter,
    'mmmoca.RandomGrayscale': _grayscale,
    'mmmoca.GaussianBlur': _blur,
    'Solarize': _solarize,
    'RandomFlip': _flip,
}
