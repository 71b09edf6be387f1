# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writes the model card of an export."""

from pathlib import Path

from mmmoca.checkpoints import Preprocessing
from mmmoca.messages import printable
from mmmoca.version import __version__

from ..encoder import Encoder
from .timm import resampling

# For each library, code that loads the folder and encodes normalised images.
_USAGE = {
    'timm': """\
import timm

model = timm.create_model('local-dir:FOLDER', pretrained=True).eval()
tokens = model.forward_features(images)  # (B, 1 + L, D)
cls, avg = tokens[:, 0], tokens[:, 1:].mean(dim=1)""",
    'transformers': """\
from transformers import AutoModel

model = AutoModel.from_pretrained('FOLDER')
tokens = model(images).last_hidden_state  # (B, 1 + L, D)
cls, avg = tokens[:, 0], tokens[:, 1:].mean(dim=1)""",
    'onnx': """\
import onnxruntime

session = onnxruntime.InferenceSession('FOLDER/model.onnx')
cls, avg, patches = session.run(None, dict(images=images))""",
    'pytorch': """\
import torch

model = torch.export.load('FOLDER/model.pt2').module()
cls, avg, patches = model(torch.from_numpy(images))""",
    'mmmoca': """\
import mmmoca

encoder = mmmoca.load('FOLDER/model.safetensors')
found = encoder(images)  # found.cls, found.avg, found.patches""",
}
# For each library that can prepare images, code that prepares an RGB photo for
# the code in _USAGE. The code for mmmoca also computes the features.
_PREPARED = {
    'timm': """\
import timm
from PIL import Image, ImageOps

model = timm.create_model('local-dir:FOLDER', pretrained=True).eval()
settings = timm.data.resolve_model_data_config(model)
upright = ImageOps.exif_transpose(Image.open('photo.jpg'))
PHOTO
images = timm.data.create_transform(**settings)(photo)[None]""",
    'transformers': """\
from PIL import Image, ImageOps
from transformers import AutoImageProcessor

upright = ImageOps.exif_transpose(Image.open('photo.jpg'))
PHOTO
prepare = AutoImageProcessor.from_pretrained('FOLDER')
images = prepare(photo, return_tensors='pt').pixel_values""",
    'mmmoca': """\
import mmmoca

encoder = mmmoca.load('FOLDER/model.safetensors')
found = encoder.embed('photo.jpg')  # found.cls, found.avg""",
}
# Code that prepares an RGB photo for the libraries that _PREPARED lacks.
_PREPARED_BY_HAND = """\
import numpy as np
from PIL import Image, ImageOps

upright = ImageOps.exif_transpose(Image.open('photo.jpg'))
PHOTO
{resize}
values = (np.asarray(photo) - {mean}) / {std}  # (H, W, 3)
images = values.transpose(2, 0, 1)[None].astype(np.float32)"""
_OPAQUE = "photo = upright.convert('RGB')"
_ON_BACKGROUND = """\
canvas = Image.new('RGBA', upright.size, {color})
canvas.alpha_composite(upright.convert('RGBA'))
photo = canvas.convert('RGB')"""
_RESIZE_WHOLE = 'photo = photo.resize(({width}, {height}), {filter})'
_RESIZE_AND_CROP = """\
size = [{edge} * side // min(photo.size) for side in photo.size]
photo = photo.resize(size, {filter})
left = round((photo.width - {width}) / 2)
top = round((photo.height - {height}) / 2)
photo = photo.crop((left, top, left + {width}, top + {height}))"""
_CARD = """\
# {title}

Made by mmmoca {version} from the {which} encoder of `{source}`
(SHA-256 {sha256}).

Features are taken after the final norm: [CLS], [AVG] (the mean patch token)
or the patch tokens themselves.

Images have {channels} channels ({order}){assumed}.
`preprocessing.json` has the size, mean and std of the images.
{prepare}
```python
{usage}
```

License of the weights: {license}.
{citation}"""
_RESIZES = (
    'This code may resize images differently from mmmoca. The features then '
    'change. The smaller the resized images, the larger the change.\n'
)
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
    name: str,
) -> None:
    """Write ``README.md``, a model card for the Hugging Face Hub.

    Args:
        folder (Path): The folder to write to.
        encoder (Encoder): The encoder that is exported.
        record (dict): The record of the export.
        library (str): The Hub's name for the library.
        license (str, optional): License of the weights.
        name (str): The final name of the folder.
    """
    from huggingface_hub import ModelCard, ModelCardData

    settings, arch = encoder.preprocessing, encoder.backbone.arch_settings
    ours = record['layout'] in ('mmmoca', 'moca')
    height, width = encoder.backbone.patch_embed.projection.kernel_size
    usage = _USAGE[library]
    if registers := getattr(encoder.backbone, 'num_registers', 0):
        usage = usage.replace('1 + L', f'1 + {registers} + L')
        usage = usage.replace('1:]', f'{1 + registers}:]')
    assumed = (
        ". The checkpoint records no mean and std, so ImageNet's are assumed"
    )
    prepare = _prepare(settings, library)
    text = _CARD.format(
        prepare=prepare.replace('FOLDER', name),
        usage=usage.replace('FOLDER', name),
        title=f'{"MOCA " if ours else ""}ViT with {arch["num_layers"]} layers '
        f'of {arch["embed_dims"]} channels, and patches of '
        f'{height} x {width} pixels',
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


def _prepare(settings: Preprocessing, library: str) -> str:
    """Return the code that prepares a photo.

    Return '' if images are not RGB and the library is not mmmoca.
    """
    if settings.channel_order != 'rgb' and library != 'mmmoca':
        return ''
    note = _RESIZES if library != 'mmmoca' else ''
    photo = _OPAQUE
    if (background := settings.pipeline[0].get('background')) is not None:
        photo = _ON_BACKGROUND.format(color=(*background, 255))
    if (code := _PREPARED.get(library)) is None:
        height, width = settings.img_size
        shape = _RESIZE_AND_CROP if settings.resize else _RESIZE_WHOLE
        kind = resampling(settings.interpolation).name
        code = _PREPARED_BY_HAND.format(
            resize=shape.format(
                edge=settings.resize,
                width=width,
                height=height,
                filter=f'Image.Resampling.{kind}',
            ),
            mean=list(settings.mean),
            std=list(settings.std),
        )
    code = code.replace('PHOTO', photo)
    return f'\n```python\n{code}\n```\n{note}'
