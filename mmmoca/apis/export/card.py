# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The model card of an export."""

from pathlib import Path

from mmmoca.messages import printable
from mmmoca.version import __version__

from ..encoder import Encoder

# Python that loads a folder of each format and encodes normalised images.
_USAGE = {
    'timm': """\
import timm

model = timm.create_model('local-dir:FOLDER', pretrained=True).eval()
tokens = model.forward_features(images)  # (B, 1 + L, D)""",
    'transformers': """\
from transformers import AutoModel

model = AutoModel.from_pretrained('FOLDER')
tokens = model(images).last_hidden_state  # (B, 1 + L, D)""",
    'onnx': """\
import onnxruntime

session = onnxruntime.InferenceSession('FOLDER/model.onnx')
cls, avg, patches = session.run(None, dict(images=images.numpy()))""",
    'pytorch': """\
import torch

model = torch.export.load('FOLDER/model.pt2').module()
cls, avg, patches = model(images)""",
    'mmmoca': """\
import mmmoca

encoder = mmmoca.load('FOLDER/model.safetensors')
found = encoder(images)  # found.cls, found.avg, found.patches""",
}
_CARD = """\
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


def write_card(
    folder: Path,
    encoder: Encoder,
    record: dict,
    library: str,
    license: str | None,
) -> None:
    """Write ``README.md``, a model card as the Hugging Face Hub reads it.

    Args:
        folder (Path): Where to.
        encoder (Encoder): As it is exported.
        record (dict): What is known of its file.
        library (str): As the Hub calls it.
        license (str, optional): Of the weights.
    """
    from huggingface_hub import ModelCard, ModelCardData

    settings, arch = encoder.preprocessing, encoder.backbone.arch_settings
    ours = record['layout'] in ('mmmoca', 'moca')
    height, width = encoder.backbone.patch_embed.projection.kernel_size
    usage = _USAGE[library]
    if registers := getattr(encoder.backbone, 'num_registers', 0):
        usage = usage.replace('1 + L', f'1 + {registers} + L')
    assumed = ", ImageNet's mean and std, as the checkpoint records none"
    text = _CARD.format(
        usage=usage,
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
    tags = ['self-supervised-learning', 'vision-transformer', 'mmmoca']
    data = ModelCardData(
        library_name=library,
        license=license and license.lower(),
        pipeline_tag='image-feature-extraction',
        tags=['moca', *tags] if ours else tags,
    )
    ModelCard(f'---\n{data}\n---\n\n{text}').save(folder / 'README.md')
