# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Exports encoders as folders that other libraries load."""

import copy
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.logging import print_log
from torch import Tensor

from mmmoca.checkpoints import (
    CheckpointError,
    read_checkpoint,
    write_checkpoint,
)
from mmmoca.checkpoints.write import file_record, file_sha256
from mmmoca.files import atomic_write, write_json
from mmmoca.messages import listed, printable
from mmmoca.requirements import import_extra

from ..encoder import Encoder
from .card import write_card
from .graph import Features, write_onnx, write_torch_export
from .timm import write_timm
from .transformers import write_dinov2, write_transformers

# The largest accepted error of exported features, as a share of their norm.
TOLERANCE = 1e-4


def _write_safetensors(
    encoder: Encoder, folder: Path, images: Tensor
) -> tuple[Tensor, ...]:
    """Write ``model.safetensors`` with mmpretrain's names."""
    state = encoder.backbone.state_dict()
    state = {f'backbone.{name}': value for name, value in state.items()}
    checkpoint = dict(state_dict=state, meta={})
    write_checkpoint(checkpoint, folder / 'model.safetensors')
    return Features(encoder.backbone)(images)  # nothing is converted


# For each format: the name of its library on the Hugging Face Hub, the modules
# that the export needs, and a function that writes an encoder into a folder
# and returns what the files compute from images.
FORMATS: dict[str, tuple[str, list[str], Callable]] = {
    'timm': ('timm', ['timm'], write_timm),
    'transformers': ('transformers', ['transformers'], write_transformers),
    'dinov2': ('transformers', ['transformers'], write_dinov2),
    'onnx': ('onnx', ['onnx', 'onnxscript'], write_onnx),
    'torch-export': ('pytorch', [], write_torch_export),
    'safetensors': ('mmmoca', [], _write_safetensors),
}


def check_target(out: str | os.PathLike, to: str) -> None:
    """Check the target of an export before a checkpoint is read.

    Args:
        out (str | os.PathLike): See :func:`export_encoder`.
        to (str): See :func:`export_encoder`.

    Raises:
        CheckpointError: If ``out`` exists.
        ImportError: If a package that the format needs is missing.
    """
    if os.path.lexists(out):
        raise CheckpointError(f'{out} exists: choose another name')
    for module in ['huggingface_hub', 'safetensors', *FORMATS[to][1]]:
        import_extra(module, f'the export to {to}', 'export')


def export_encoder(
    encoder: Encoder,
    out: str | os.PathLike,
    to: str,
    license: str | None = None,
) -> None:
    """Write an encoder as a folder that another library loads.

    The features that the library then computes from random images are compared
    with the encoder's, and a log line says how much they differ.

    An encoder for BGR images, as MMCV loads them, is converted to one that
    computes the same from RGB images. Only 'safetensors' keeps BGR.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        out (str | os.PathLike): The folder. It appears only when it is
            complete.
        to (str): The format, a key of ``FORMATS``.
        license (str, optional): License of the weights, as an SPDX identifier.
            Without it, the model card says that the license is not stated.

    Raises:
        CheckpointError: If ``out`` exists, or the library computes other
            features than the encoder.
        ImportError: If a package that the format needs is missing.
        OSError: If the folder cannot be written.
    """
    check_target(out, to)
    from safetensors import SafetensorError

    library, _, write = FORMATS[to]
    encoder = copy.deepcopy(encoder).cpu()
    if to != 'safetensors':
        _to_rgb(encoder)
    record = _record_of(encoder)
    projection = encoder.backbone.patch_embed.projection
    prepared = record['preprocessing'] | dict(
        img_size=encoder.preprocessing.img_size,
        patch_size=projection.kernel_size,
        num_heads=record['num_heads'],
    )
    shape = projection.in_channels, *encoder.backbone.img_size
    # The export does not change the random numbers of the rest of the process.
    with (
        atomic_write(out) as folder,
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
    ):
        folder.mkdir()
        images = torch.randn(2, *shape)
        try:
            found = write(encoder, folder, images)
        except SafetensorError as error:  # for example, a full disk
            raise OSError(f'{out} cannot be written: {error}') from error
        if found is not None:
            _compare(found, Features(encoder.backbone)(images), to)
        _add_record(folder / 'model.safetensors', record)
        write_json(folder / 'preprocessing.json', prepared)
        name = printable(Path(out).name)
        write_card(folder, encoder, record, library, license, name)


def _record_of(encoder: Encoder) -> dict:
    """Return the record of an export, in the form that this package reads."""
    facts, settings = dict(encoder.metainfo), encoder.preprocessing
    path = facts.pop('checkpoint')
    return file_record(
        path,
        **facts,
        grid=tuple(encoder.backbone.patch_resolution),
        sha256=file_sha256(path),
        # The same fields as in `run_record`.
        preprocessing={
            name: value
            for name, value in settings._asdict().items()
            if name != 'img_size'
        },
    )


def _add_record(path: Path, record: dict) -> None:
    """Add our record to the safetensors file, if the library wrote one."""
    if path.exists():
        state = read_checkpoint(path)['state_dict']
        write_checkpoint(
            dict(state_dict=state, meta=dict(mmmoca=record)), path
        )


def _compare(
    theirs: Sequence[Tensor | np.ndarray], ours: Sequence[Tensor], to: str
) -> None:
    """Log how much the features differ. Refuse too large a difference."""
    errors = [
        (torch.as_tensor(found) - wanted).norm() / wanted.norm()
        for found, wanted in zip(theirs, ours)
    ]
    difference = torch.stack(errors).max()
    print_log(
        f'{to}: features differ by {difference:.1e} of their norm', 'current'
    )
    if not difference <= TOLERANCE:  # NaN fails too
        raise CheckpointError(
            f'{to} cannot represent this encoder: the features differ by '
            f'{difference:.1e} of their norm, more than {TOLERANCE}. Export '
            f'to one of {listed(name for name in FORMATS if name != to)}'
        )


def _to_rgb(encoder: Encoder) -> None:
    """Convert an encoder for BGR images to one for RGB images, in place."""
    settings = encoder.preprocessing
    if settings.channel_order == 'bgr':
        weight = encoder.backbone.patch_embed.projection.weight
        weight.data = weight.data.flip(1)
        mean, std = settings.mean[::-1], settings.std[::-1]
        encoder.preprocessing = settings._replace(
            mean=mean, std=std, channel_order='rgb'
        )
