# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Makes checkpoints from other files, and writes them atomically."""

import hashlib
import json
import os
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

from mmmoca.files import atomic_write
from mmmoca.version import __version__

from .backbone import Backbone


def file_record(source: str | os.PathLike, **facts: Any) -> dict:
    """Return the record of a checkpoint that is made from another file.

    Args:
        source (str | os.PathLike): Path of the other file.
        **facts (Any): The entries of the record, such as ``layout``,
            ``which``, ``grid`` and ``feature``, see :class:`Backbone`.
            ``which`` is 'full' for a whole model.

    Returns:
        dict: These entries, ``source`` (the name of the other file) and
        ``version`` (that of this package).
    """
    name = os.path.basename(source)
    return dict(source=name, version=__version__, **facts)


def backbone_checkpoint(backbone: Backbone, source: str) -> dict:
    """Return a checkpoint that mmpretrain, mmseg and mmdet load.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        source (str): Path of the file that the backbone was read from.

    Returns:
        dict: A checkpoint for ``load_from``, and for ``Pretrained`` with
        ``prefix='backbone.'``. The names in ``state_dict`` begin with
        ``backbone.``. The record in ``meta.mmmoca`` (see :func:`file_record`)
        includes ``num_heads``, ``norm_eps`` and ``preprocessing`` if the
        backbone's record has them.
    """
    known = backbone.record
    names = 'num_heads', 'norm_eps', 'preprocessing'
    kept = {name: known[name] for name in names if name in known}
    record = file_record(
        source,
        layout=backbone.layout,
        which=backbone.which,
        grid=backbone.grid,
        feature=backbone.feature,
        **kept,
    )
    return dict(
        state_dict={
            f'backbone.{name}': value
            for name, value in backbone.state_dict.items()
        },
        meta=dict(mmmoca=record),
    )


def file_sha256(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_checkpoint(checkpoint: dict, path: str | os.PathLike) -> None:
    """Write a checkpoint file that appears only when it is complete.

    Args:
        checkpoint (dict): ``state_dict``, and ``meta`` of plain values.
        path (str | os.PathLike): The file. If it ends in ``.safetensors``, it
            has that format, with ``meta`` as JSON in its metadata. Otherwise
            ``torch.save`` writes it.
    """
    # Tensors are cloned, because saving a view saves its whole storage.
    state_dict = {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in checkpoint['state_dict'].items()
    }
    with atomic_write(path) as temporary:
        if temporary.suffix == '.safetensors':
            from safetensors.torch import save

            meta = {k: json.dumps(v) for k, v in checkpoint['meta'].items()}
            # safetensors' save_file would write a file that only its owner can
            # read.
            temporary.write_bytes(save(state_dict, dict(format='pt') | meta))
        else:
            torch.save(dict(checkpoint, state_dict=state_dict), temporary)


def plain(value: Any) -> Any:
    """Replace values that ``torch.load(weights_only=True)`` refuses.

    Args:
        value (Any): Content of a checkpoint.

    Returns:
        Any: The same content, but tensors replace NumPy's arrays, Python's
        numbers replace NumPy's, and a list of two tensors (values and counts)
        replaces a log history.
    """
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    if isinstance(value, HistoryBuffer):
        return plain([*value.data])
    if isinstance(value, np.ndarray) and value.dtype.kind in 'biuf':
        return torch.from_numpy(value)
    return value.tolist() if isinstance(value, np.generic) else value
