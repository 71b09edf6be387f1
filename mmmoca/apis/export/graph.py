# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Exports encoders as graphs of operations: ONNX and ``torch.export``."""

import io
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from mmengine.logging import print_log
from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn

from ..encoder import Encoder


class Features(nn.Module):
    """A ViT that returns features as a tuple of tensors, for an export.

    Args:
        vit (VisionTransformer): A ViT that returns all tokens after its final
            norm.
    """

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.vit = vit
        self.eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode a batch.

        Args:
            images (Tensor): Normalised images, (B, C, H, W).

        Returns:
            tuple[Tensor, Tensor, Tensor]: [CLS], (B, D); [AVG], the mean
            patch token, (B, D); and the patch tokens row by row, (B, L, D).
        """
        tokens = self.vit(images)[0]
        patches = tokens[:, 1:]
        return tokens[:, 0], patches.mean(dim=1), patches


def _exported(encoder: Encoder) -> torch.export.ExportedProgram:
    """Return a graph of the encoder for batches of any size."""
    vit = encoder.backbone
    channels = vit.patch_embed.projection.in_channels
    images = torch.zeros(2, channels, *vit.img_size)
    # PyTorch 2.6 does not export a dimension without a maximum.
    batch = torch.export.Dim('batch', max=2**31)
    with torch.no_grad():
        return torch.export.export(
            Features(vit),
            (images,),
            dynamic_shapes=dict(images={0: batch}),
            strict=False,  # the default from PyTorch 2.7 on
        )


def write_onnx(
    encoder: Encoder, folder: Path, images: Tensor
) -> list[np.ndarray] | None:
    """Write ``model.onnx``; weights above 2 GB go to a second file.

    Args:
        encoder (Encoder): The encoder.
        folder (Path): The folder to write to.
        images (Tensor): Normalised images, (B, C, H, W).

    Returns:
        list[np.ndarray] | None: What ONNX Runtime computes from the images,
        see :meth:`Features.forward`; None if it is not installed.
    """
    with warnings.catch_warnings():
        # PyTorch warns about its own code.
        warnings.simplefilter('ignore', FutureWarning)
        torch.onnx.export(
            _exported(encoder),
            f=folder / 'model.onnx',
            input_names=['images'],
            output_names=('cls', 'avg', 'patches'),
            dynamic_shapes=dict(images={0: 'batch'}),  # name of the axis
            opset_version=18,
            dynamo=True,
            external_data=False,  # unless weights exceed 2 GB
            verbose=False,
        )
    if find_spec('onnxruntime') is None:
        print_log('install onnxruntime to have the export checked', 'current')
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / 'model.onnx')
    return session.run(None, dict(images=images.numpy()))


def write_torch_export(
    encoder: Encoder, folder: Path, images: Tensor
) -> tuple[Tensor, ...]:
    """Write ``model.pt2``, for ``torch.export.load``.

    Args:
        encoder (Encoder): The encoder.
        folder (Path): The folder to write to.
        images (Tensor): Normalised images, (B, C, H, W).

    Returns:
        tuple[Tensor, ...]: What the file computes from the images, see
        :meth:`Features.forward`.
    """
    # When PyTorch itself writes the file, a full disk aborts the process.
    file = io.BytesIO()
    torch.export.save(_exported(encoder), file)
    (folder / 'model.pt2').write_bytes(file.getbuffer())
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)  # about loading
        return torch.export.load(folder / 'model.pt2').module()(images)
