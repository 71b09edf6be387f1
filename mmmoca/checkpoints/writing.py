# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writing checkpoints whole or not at all."""

import hashlib
import json
import os

import torch

from mmmoca.files import atomic_write

from .layouts import Backbone
from .records import file_record, record_of

__all__ = [
    'backbone_checkpoint',
    'file_sha256',
    'write_checkpoint',
]


def backbone_checkpoint(backbone: Backbone, source: str) -> dict:
    """A checkpoint that mmpretrain, mmseg and mmdet load.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        source (str): Path of the file it was read from.

    Returns:
        dict: ``state_dict`` with names after ``backbone.``, for ``load_from``
        and ``Pretrained`` (with ``prefix='backbone.'``), and ``meta.mmmoca``:
        file, layout, which encoder, patch grid, feature and version of this
        package, and where the file says it, the number of heads and how
        images are prepared.
    """
    known = record_of(backbone.meta)
    about = file_record(
        source, *backbone.origin, backbone.grid, backbone.feature
    ) | {k: known[k] for k in ('num_heads', 'preprocessing') if k in known}
    return dict(
        state_dict={
            f'backbone.{name}': value
            for name, value in backbone.state_dict.items()
        },
        meta=dict(mmmoca=about),
    )


def file_sha256(path: str | os.PathLike) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_checkpoint(checkpoint: dict, path: str | os.PathLike) -> None:
    """Write a checkpoint under its name only when it is complete.

    Args:
        checkpoint (dict): ``state_dict`` and ``meta`` of plain values.
        path (str | os.PathLike): Where to; ``.safetensors`` for that format,
            with ``meta`` as JSON in its metadata, else as ``torch.save``.
    """
    # Copies, since views would be saved with all they are views of.
    state_dict = {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in checkpoint['state_dict'].items()
    }
    with atomic_write(path) as temporary:
        if temporary.suffix == '.safetensors':
            from safetensors.torch import save

            meta = {k: json.dumps(v) for k, v in checkpoint['meta'].items()}
            # Others could not read what its save_file writes.
            temporary.write_bytes(save(state_dict, dict(format='pt') | meta))
        else:
            torch.save(dict(checkpoint, state_dict=state_dict), temporary)
