# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Encoders as folders that other libraries load, each with a model card."""

import copy
import os
from collections.abc import Callable

from mmmoca.checkpoints import CheckpointError
from mmmoca.checkpoints.write import file_record, file_sha256
from mmmoca.files import atomic_write, write_json, write_text
from mmmoca.messages import printable
from mmmoca.requirements import import_extra
from mmmoca.version import __version__

from .encoder import Encoder
from .export_formats import (
    transformers_class,
    write_onnx,
    write_safetensors,
    write_timm,
    write_torch_export,
    write_transformers,
)

# How to write each format, what the Hugging Face Hub calls its library, and
# the modules that writing needs.
FORMATS: dict[str, tuple[Callable, str, list[str]]] = {
    'timm': (write_timm, 'timm', ['safetensors']),
    'transformers': (write_transformers, 'transformers', ['safetensors']),
    'onnx': (write_onnx, 'onnx', ['onnx', 'onnxscript']),
    'torch-export': (write_torch_export, 'pytorch', []),
    'safetensors': (write_safetensors, 'mmmoca', ['safetensors']),
}
# Python that loads a folder of each format and encodes normalised images.
_USAGE = {
    'timm': """\
import timm

model = timm.create_model('local-dir:FOLDER', pretrained=True).eval()
tokens = model.forward_features(images)  # (B, 1 + L, D)""",
    'transformers': """\
from transformers import ViTModel

model = ViTModel.from_pretrained('FOLDER', add_pooling_layer=False)
tokens = model(images).last_hidden_state  # (B, 1 + L, D)""",
    'onnx': """\
import onnxruntime

session = onnxruntime.InferenceSession('FOLDER/model.onnx')
cls, avg, patches = session.run(None, dict(images=images.numpy()))""",
    'torch-export': """\
import torch

model = torch.export.load('FOLDER/model.pt2').module()
cls, avg, patches = model(images)""",
    'safetensors': """\
import mmmoca

encoder = mmmoca.load('FOLDER/model.safetensors')
found = encoder(images)  # found.cls, found.avg, found.patches""",
}
_CARD = """\
---
{license_line}library_name: {library}
pipeline_tag: image-feature-extraction
tags:
{moca}- self-supervised-learning
- vision-transformer
- mmmoca
---

# {title}

Made from `{source}` (SHA-256 {sha256}), {which} encoder, by mmmoca {version}.

Features are those after the final norm: [CLS], [AVG] (the mean patch token)
or the patch tokens themselves. `preprocessing.json` says how to prepare
images: {channels} channels ({order}){assumed}.

```python
{usage}
```

License of the weights: {license}.
{citation}"""
_CITATION = """
MOCA: Self-supervised Representation Learning by Predicting Masked Online
Codebook Assignments, S. Gidaris, A. Bursuc, O. Siméoni, A. Vobecký,
N. Komodakis, M. Cord and P. Pérez, TMLR 2024.
"""


def check_target(out: str | os.PathLike, to: str) -> None:
    """Check what can be checked before a checkpoint is read.

    Args:
        out (str | os.PathLike): See :func:`export_encoder`.
        to (str): Likewise.

    Raises:
        CheckpointError: If ``out`` exists.
        ImportError: If a package is missing that the format needs.
    """
    if os.path.lexists(out):
        raise CheckpointError(f'{out} exists: give a name that is free')
    for module in FORMATS[to][2]:
        import_extra(module, f'the export to {to}', 'export')


def export_encoder(
    encoder: Encoder,
    out: str | os.PathLike,
    to: str,
    license: str | None = None,
) -> None:
    """Write an encoder as a folder that another library loads.

    Encoders of BGR images, which MMCV loads, are changed to take RGB and
    compute the same. 'safetensors' keeps BGR.

    Args:
        encoder (Encoder): What :func:`mmmoca.load` returned.
        out (str | os.PathLike): The folder. It appears when it is complete.
        to (str): A key of ``FORMATS``.
        license (str, optional): Of the weights, as an SPDX identifier. It is
            never guessed.

    Raises:
        CheckpointError: If there is something of that name.
        ImportError: If a package is missing that the format needs.
    """
    check_target(out, to)
    write = FORMATS[to][0]
    encoder = copy.deepcopy(encoder).cpu()
    if to != 'safetensors':
        _to_rgb(encoder)
    vit, settings = encoder.backbone, encoder.preprocessing
    facts = dict(encoder.metainfo)
    path, heads = facts.pop('checkpoint'), facts['num_heads']
    record = file_record(
        path,
        **facts,
        grid=tuple(vit.patch_resolution),
        sha256=file_sha256(path),
        # As `run_record` has it.
        preprocessing=settings._asdict() | dict(cropped=settings.img_size[0]),
    )
    patch = vit.patch_embed.projection.kernel_size
    prepared = settings._asdict() | dict(patch_size=patch, num_heads=heads)
    with atomic_write(out) as folder:
        folder.mkdir()
        write(encoder, record, folder)
        write_json(folder / 'preprocessing.json', prepared)
        card = _model_card(encoder, record, to, license)
        write_text(folder / 'README.md', card)


def _to_rgb(encoder: Encoder) -> None:
    """Let an encoder of BGR images take RGB ones, in place."""
    settings = encoder.preprocessing
    if settings.channel_order == 'bgr':
        weight = encoder.backbone.patch_embed.projection.weight
        weight.data = weight.data.flip(1)
        mean, std = settings.mean[::-1], settings.std[::-1]
        encoder.preprocessing = settings._replace(
            mean=mean, std=std, channel_order='rgb'
        )


def _model_card(
    encoder: Encoder, record: dict, to: str, license: str | None
) -> str:
    """Markdown after a front matter of YAML, as the Hub reads it."""
    settings, arch = encoder.preprocessing, encoder.backbone.arch_settings
    ours = record['layout'] in ('mmmoca', 'moca')
    height, width = encoder.backbone.patch_embed.projection.kernel_size
    usage, kind = _USAGE[to], transformers_class(encoder.backbone)
    if kind != 'ViTModel':
        usage = usage.replace(', add_pooling_layer=False', '')
        usage = usage.replace('ViTModel', kind)
    if registers := getattr(encoder.backbone, 'num_registers', 0):
        usage = usage.replace('1 + L', f'1 + {registers} + L')
    assumed = ", ImageNet's mean and std, as the checkpoint records none"
    return _CARD.format(
        license_line=f'license: {license.lower()}\n' if license else '',
        library=FORMATS[to][1],
        usage=usage,
        moca='- moca\n' if ours else '',
        title=f'{"MOCA " if ours else ""}ViT of {arch["num_layers"]} layers '
        f'of {arch["embed_dims"]}, patches of {height} x {width}',
        source=printable(record['source']),
        sha256=record['sha256'],
        which=record['which'],
        version=__version__,
        channels=len(settings.mean),
        order=settings.channel_order,
        assumed=assumed if settings.source == 'assumed' else '',
        license=license or 'not stated',
        citation=_CITATION if ours else '',
    )
