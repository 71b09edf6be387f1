# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tensors in a safetensors file that says where they are from."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ..writing import write_checkpoint
from .encoder import Encoder

__all__ = ['write_weights']


def write_weights(
    encoder: Encoder, state_dict: Mapping[str, Tensor], folder: Path
) -> None:
    """Write ``model.safetensors``, which this package reads again.

    Args:
        encoder (Encoder): What is exported.
        state_dict (Mapping[str, Tensor]): Its tensors under the names of the
            format.
        folder (Path): Where to.
    """
    checkpoint = dict(state_dict=state_dict, meta=dict(mmmoca=encoder.record))
    write_checkpoint(checkpoint, folder / 'model.safetensors')
