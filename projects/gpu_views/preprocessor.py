# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mmmoca.models import ViewsDataPreprocessor
from mmmoca.models.precision import no_autocast
from mmmoca.registry import MODELS

from .operations import View


@MODELS.register_module()
class AugmentingViewsPreprocessor(ViewsDataPreprocessor):
    """Makes the views on the device. Data loaders only decode.

    It suits machines with few CPU cores per GPU. The configs of the views'
    transforms move here from the CPU's pipeline, which then ends with
    ``PackCanvas``. Images larger than the canvas are shrunk first. With a
    canvas of 512, 17 % of the crops of large photos are therefore smaller than
    the views and are enlarged. Apart from those, views have the CPU's
    distribution and rounding. The host never waits for the device, and on a
    GPU the operations can be compiled into a few kernels. Random numbers are
    drawn from PyTorch's generator of the device, as for masks.
    :class:`~mmmoca.engine.ReproducibilityHook` seeds this generator with the
    run's seed, the rank and the iteration, so that a resumed run sees the same
    views on the same number of ranks. Whole images, such as those of
    validation, are left to :class:`ViewsDataPreprocessor`.

    Args:
        views (Sequence[Sequence[dict]]): Configs of the transforms of each
            view, see :class:`View`.
        compile (bool): Whether to compile the operations that make the views.
            Defaults to False.
        **kwargs: ``mean``, ``std`` and ``to_rgb`` of
            :class:`ViewsDataPreprocessor`.

    Raises:
        ValueError: At build time, if the transforms of a view are not
            supported.
    """

    def __init__(
        self,
        views: Sequence[Sequence[dict]],
        compile: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.views = [*map(View, views)]
        self.makers = [view.make for view in self.views]
        if compile:
            self.makers = [*map(torch.compile, self.makers)]

    def forward(self, data: dict, training: bool = False) -> dict:
        """Make the views of a batch, or prepare whole images.

        Args:
            data (dict): ``inputs`` are the collated results of
                ``PackCanvas``, or whole images, (B, C, H, W), or views.
            training (bool): Not used.

        Returns:
            dict: ``inputs``, which are a list of views or the images,
            normalised, in float32 on the device; and ``data_samples``
            unchanged.
        """
        inputs = data['inputs']
        if isinstance(inputs, Mapping):
            inputs = self.cast_data(inputs)
            data = data | dict(inputs=self._make_views(**inputs))
        return super().forward(data, training)

    def _make_views(self, canvas: Tensor, size: Tensor) -> list[Tensor]:
        views = []
        # Autocast would resize in bfloat16, which has 8 bits of precision.
        with no_autocast(canvas):
            for view, make in zip(self.views, self.makers):
                shape = len(canvas), view.numbers
                uniform = torch.rand(shape, device=canvas.device)
                views.append(make(canvas, size, uniform))
        return views
