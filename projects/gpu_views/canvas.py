# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import numpy as np
import torch
from mmpretrain.datasets.transforms import PackInputs
from torch import Tensor

from mmmoca.datasets import functional as F
from mmmoca.registry import TRANSFORMS


@TRANSFORMS.register_module()
class PackCanvas(PackInputs):
    """Pack a whole image for views that are made on the device.

    If ``AugmentingViewsPreprocessor`` makes the views, this transform replaces
    ``MultiView`` and ``PackInputs`` at the end of the pipeline. The image is
    in the upper left corner of a canvas of fixed size, so that a batch is one
    tensor. A larger image is shrunk to fit, with antialiasing; a smaller one
    is not enlarged.

    **Required Keys:** ``img``, (H, W) or (H, W, C), uint8.

    **Added Keys:** ``inputs``, a dict, and ``data_samples`` (see
    :class:`PackInputs`). The dict contains ``canvas``, (*size, C), uint8, and
    ``size``, the height and width of the image in the canvas, (2,), int64.

    Args:
        size (int | Sequence[int]): Height and width of the canvas in pixels,
            or one number. Defaults to 512, which exceeds the sides of most
            ImageNet images.
        **kwargs: Further arguments of :class:`PackInputs`.

    Raises:
        ValueError: If an image is not uint8.
    """

    def __init__(self, size: int | Sequence[int] = 512, **kwargs) -> None:
        super().__init__(**kwargs)
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def format_input(self, img: np.ndarray) -> dict[str, Tensor]:
        """Put an image into a canvas; see the class."""
        if img.dtype != np.uint8:
            raise ValueError(
                f'PackCanvas needs uint8 images but got {img.dtype}: make '
                'the views of such images on the CPU, with MultiView'
            )
        height, width = img.shape[:2]
        scale = min(self.size[0] / height, self.size[1] / width)
        if scale < 1:
            height, width = (
                max(1, round(scale * side)) for side in (height, width)
            )
            img = F.resize(img, (height, width))
        img = np.atleast_3d(img)
        canvas = np.zeros((*self.size, img.shape[2]), dtype=np.uint8)
        canvas[:height, :width] = img
        return dict(
            canvas=torch.from_numpy(canvas),
            size=torch.tensor((height, width)),
        )
