# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import torch
from mmengine.model import BaseDataPreprocessor
from torch import Tensor, nn

from mmmoca.registry import MODELS


def register_numbers(
    module: nn.Module,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> None:
    """Register a module's mean and std as buffers, (C, 1, 1) or None."""
    if (mean is None) != (std is None) or len(mean or ()) != len(std or ()):
        raise ValueError(
            f'mean={mean} and std={std} need one number for each channel'
        )
    if std is not None and min(std) <= 0:
        raise ValueError(f'std must be above 0, got {std}')
    for name, values in (('mean', mean), ('std', std)):
        numbers = None
        if values is not None:
            numbers = torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)
        module.register_buffer(name, numbers, persistent=False)


@MODELS.register_module()
class ViewsDataPreprocessor(BaseDataPreprocessor):
    """Moves views to the device and normalises each channel.

    It differs from mmpretrain's ``SelfSupDataPreprocessor`` in three ways. The
    host never waits for the device (copies do not block if the loader pins its
    memory). Data samples stay on the host. Images with a wrong number of
    channels raise an error; no channel is dropped silently.

    Args:
        mean (Sequence[float], optional): One number for each channel, in the
            order after ``to_rgb``, or one for all. Defaults to None, no
            normalisation.
        std (Sequence[float], optional): Like ``mean``.
        to_rgb (bool): Whether to turn BGR, as MMCV loads it, into RGB.
            Defaults to False.

    Raises:
        ValueError: If ``mean`` and ``std`` differ in length or do not fit
            ``to_rgb``, or a ``std`` is not above 0. In the forward pass, if
            images have a wrong number of channels.
    """

    def __init__(
        self,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        to_rgb: bool = False,
    ) -> None:
        super().__init__(non_blocking=True)
        register_numbers(self, mean, std)
        self.to_rgb = to_rgb
        self.num_channels = 3 if to_rgb else None
        if mean is not None and len(mean) > 1:
            self.num_channels = len(mean)
        if to_rgb and self.num_channels != 3:
            raise ValueError(
                f'to_rgb=True needs 3 channels, but mean has {len(mean)} '
                'numbers: write to_rgb=False'
            )

    def forward(self, data: dict, training: bool = False) -> dict:
        """Prepare a batch.

        Args:
            data (dict): ``inputs``, (B, C, H, W) or a list of such views, and
                optionally ``data_samples``, as ``default_collate`` makes them.
            training (bool): Not used.

        Returns:
            dict: ``inputs`` in float32 on the device, and ``data_samples``
            unchanged.
        """
        inputs = data['inputs']
        if isinstance(inputs, Tensor):
            inputs = self._prepare(inputs)
        else:
            inputs = [self._prepare(view) for view in inputs]
        return dict(inputs=inputs, data_samples=data.get('data_samples'))

    def _prepare(self, images: Tensor) -> Tensor:
        channels = images.shape[-3]
        if self.num_channels not in (None, channels):
            raise ValueError(
                f'the images have {channels} channels, but model.'
                f'data_preprocessor is for {self.num_channels}: set its mean '
                f'and std, and model.backbone.in_channels={channels}'
            )
        images = self.cast_data(images)
        if self.to_rgb:
            images = images.flip(-3)
        if self.mean is None:
            return images.float()
        # The subtraction turns integers into float32.
        return (images - self.mean).div_(self.std)
