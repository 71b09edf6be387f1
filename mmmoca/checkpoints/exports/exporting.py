# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Encoders in the formats of other libraries, each a folder with a card."""

import os
from pathlib import Path

from mmmoca.files import atomic_write, write_json, write_text

from ..reading import CheckpointError
from .encoder import Encoder
from .graphs import ONNX, TORCH_EXPORT
from .model_card import model_card
from .safetensors_folder import SAFETENSORS
from .timm_folder import TIMM
from .transformers_folder import TRANSFORMERS

__all__ = ['FORMATS', 'check_target', 'export_encoder']

FORMATS = {
    'timm': TIMM,
    'transformers': TRANSFORMERS,
    'onnx': ONNX,
    'torch-export': TORCH_EXPORT,
    'safetensors': SAFETENSORS,
}


def check_target(out: str | os.PathLike, to: str) -> None:
    """Check what can be checked before a checkpoint is read.

    Args:
        out (str | os.PathLike): See :func:`export_encoder`.
        to (str): Likewise.

    Raises:
        CheckpointError: If there is something of that name.
        ImportError: If a package is missing that the format needs.
    """
    if os.path.lexists(out):
        raise CheckpointError(f'{out} exists: give a name that is free')
    FORMATS[to].check_packages()


def export_encoder(
    encoder: Encoder,
    out: str | os.PathLike,
    to: str,
    license: str | None = None,
) -> None:
    """Write an encoder as a folder that another library loads.

    Args:
        encoder (Encoder): What :func:`encoder_of` returned.
        out (str | os.PathLike): The folder. It appears when it is complete.
        to (str): A key of ``FORMATS``.
        license (str, optional): Of the weights, as an SPDX identifier.

    Raises:
        CheckpointError: If there is something of that name, or the format
            cannot hold the encoder.
        ImportError: If a package is missing that the format needs.
    """
    check_target(out, to)
    form = FORMATS[to]
    if form.in_rgb:
        encoder = encoder.in_rgb()
    usage = form.usage(encoder, Path(out).name)
    with atomic_write(out) as folder:
        folder.mkdir()
        form.write(encoder, folder)
        write_json(folder / 'preprocessing.json', _preparation(encoder))
        card = model_card(encoder, form.library, usage, license)
        write_text(folder / 'README.md', card)


def _preparation(encoder: Encoder) -> dict:
    return encoder.preprocessing._asdict() | dict(
        patch_size=encoder.patch_size, num_heads=encoder.arch['num_heads']
    )
