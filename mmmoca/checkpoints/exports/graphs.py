# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Graphs that run without the code of a model: ONNX and torch.export."""

from pathlib import Path

import torch

from .encoder import Encoder, Features
from .format import Format

__all__ = ['ONNX', 'TORCH_EXPORT']

_OPSET = 18
# Protocol buffers end at 2 GB.
_ONE_FILE = 1_900_000_000
_OUTPUTS = ('cls', 'avg', 'patches')


def write_onnx(encoder: Encoder, folder: Path) -> None:
    """Write ``model.onnx``; weights above 2 GB lie beside it."""
    model = Features(encoder.vit).eval()
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    torch.onnx.export(
        model,
        (model.example(),),
        folder / 'model.onnx',
        input_names=['images'],
        output_names=_OUTPUTS,
        opset_version=_OPSET,
        dynamo=True,
        external_data=size > _ONE_FILE,
        dynamic_shapes=_dynamic_batch(),
        verbose=False,
    )


def write_torch_export(encoder: Encoder, folder: Path) -> None:
    """Write ``model.pt2``."""
    model = Features(encoder.vit).eval()
    with torch.no_grad():
        program = torch.export.export(
            model, (model.example(),), dynamic_shapes=_dynamic_batch()
        )
    torch.export.save(program, folder / 'model.pt2')


def _dynamic_batch() -> dict:
    return dict(images={0: torch.export.Dim('batch')})


def usage_onnx(encoder: Encoder, name: str) -> str:
    """How to load it."""
    return f"""\
import onnxruntime

folder = {name!r}
session = onnxruntime.InferenceSession(f'{{folder}}/model.onnx')
cls, avg, patches = session.run(None, dict(images=images))  # float32"""


def usage_torch_export(encoder: Encoder, name: str) -> str:
    """How to load it."""
    return f"""\
import torch

folder = {name!r}
model = torch.export.load(f'{{folder}}/model.pt2').module()
cls, avg, patches = model(images)"""


ONNX = Format(write_onnx, usage_onnx, 'onnx', ('onnx', 'onnxscript'))
TORCH_EXPORT = Format(write_torch_export, usage_torch_export, 'pytorch', ())
