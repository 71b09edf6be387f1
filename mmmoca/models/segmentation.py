# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

from mmengine.model import BaseDataPreprocessor

from mmmoca.registry import MODELS

from .data_preprocessor import register_numbers


# This is a function because a class would inherit from mmseg's class, and
# pretraining must run without mmseg.
@MODELS.register_module(name='SegBandsPreprocessor')
def seg_bands_preprocessor(
    mean: Sequence[float], std: Sequence[float], **options
) -> BaseDataPreprocessor:
    """Build mmseg's ``SegDataPreProcessor`` for any number of channels.

    Registered as ``mmmoca.SegBandsPreprocessor``. In onedl-mmsegmentation,
    mmseg's class accepts only a ``mean`` and ``std`` of one or three numbers.

    Args:
        mean (Sequence[float]): One number for each channel.
        std (Sequence[float]): One number for each channel.
        **options: Other arguments of mmseg's class: ``size``, ``pad_val``, ...

    Returns:
        BaseDataPreprocessor: An object of mmseg's class.

    Raises:
        ValueError: If ``mean`` and ``std`` differ in length, or a ``std`` is
            not above 0.
    """
    from mmseg.models import SegDataPreProcessor

    built = SegDataPreProcessor(mean=[0.0], std=[1.0], **options)
    register_numbers(built, mean, std)
    return built
