# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The README of an export, in the form of the Hugging Face Hub."""

import os

from mmmoca.messages import printable
from mmmoca.version import __version__

from .encoder import Encoder
from .run_facts import figures_of, recipe_of

__all__ = ['model_card']

_CARD = """\
---
{front}
---

# {title}

{about}

```python
{usage}
```

Features are those after the final norm: [CLS], [AVG] (the mean patch token)
or the patch tokens themselves.{judged}

## Images

{images}

## Training

{training}

## Figures

{figures}

## Licence

{licence}
{citation}"""
_CITATION = """
## Citation

```bibtex
@article{gidaris2024moca,
  title   = {{MOCA}: Self-supervised Representation Learning by Predicting
             Masked Online Codebook Assignments},
  author  = {Gidaris, Spyros and Bursuc, Andrei and Sim{\\'e}oni, Oriane and
             Vobeck{\\'y}, Anton{\\'i}n and Komodakis, Nikos and Cord, Matthieu
             and P{\\'e}rez, Patrick},
  journal = {Transactions on Machine Learning Research},
  year    = {2024}
}
```
"""


def model_card(
    encoder: Encoder,
    path: str | os.PathLike,
    library: str,
    usage: str,
    license: str | None = None,
) -> str:
    """Describe an export by what its checkpoint records.

    Args:
        encoder (Encoder): What is exported.
        path (str | os.PathLike): The checkpoint it was read from.
        library (str): What the Hub calls the library of the format.
        usage (str): Python code that loads it.
        license (str, optional): Of the weights, as an SPDX identifier. It is
            never guessed.

    Returns:
        str: Markdown after a front matter of YAML.
    """
    ours = encoder.record['layout'] in ('mmmoca', 'moca')
    tags = ['self-supervised-learning', 'vision-transformer', 'mmmoca']
    front = [
        *([f'license: {license.lower()}'] if license else []),
        f'library_name: {library}',
        'pipeline_tag: image-feature-extraction',
        'tags:',
        *(f'- {tag}' for tag in (['moca'] if ours else []) + tags),
    ]
    meta, feature = encoder.source.meta, encoder.record['feature']
    return _CARD.format(
        front='\n'.join(front),
        title=_title(encoder, ours),
        about=_about(encoder, ours),
        usage=usage,
        judged=f' This one is evaluated on [{feature.upper()}].'
        if feature
        else '',
        images=_images(encoder),
        training=_table(recipe_of(meta))
        or 'The checkpoint does not record how it was trained.',
        figures=_figures(figures_of(meta, path)),
        licence=f'{license}.' if license else 'Not stated.',
        citation=_CITATION if ours else '',
    )


def _title(encoder: Encoder, ours: bool) -> str:
    arch, patch = encoder.arch, encoder.patch_size
    side = patch[0] if patch[0] == patch[1] else f'{patch[0]}x{patch[1]}'
    size = f'{arch["num_layers"]} layers of {arch["embed_dims"]}'
    return f'{"MOCA " if ours else ""}ViT of {size}, patches of {side}'


def _about(encoder: Encoder, ours: bool) -> str:
    record = encoder.record
    which = '' if record['which'] == 'only' else f'{record["which"]} of a '
    kind = (
        'pretraining by [MOCA](https://arxiv.org/abs/2307.09361)'
        if ours
        else f'checkpoint in the layout {record["layout"]}'
    )
    parameters = sum(p.numel() for p in encoder.vit.parameters()) / 1e6
    return (
        f'A Vision Transformer, the {which}{kind}, made from '
        f'`{printable(record["source"])}` (SHA-256 {record["sha256"]}) by '
        f'mmmoca {__version__}. {parameters:.3g} million parameters, '
        f'{encoder.arch["num_heads"]} heads.'
    )


def _images(encoder: Encoder) -> str:
    images = encoder.preprocessing
    height, width = images.img_size
    resized = (
        f'resized to {images.resize} pixels along their shorter side, from '
        f'the middle of which {height} x {width} are cut out'
        if images.resize is not None
        else f'resized to {height} x {width} pixels'
    )
    values = (
        'with the values of the file'
        if images.channel_order == 'bands'
        else 'with values from 0 to 255'
    )
    text = (
        f'{encoder.channels} channels ({images.channel_order}), {resized} '
        f'({images.interpolation}), {values}, normalised by mean '
        f'{_numbers(images.mean)} and std {_numbers(images.std)}. '
        '`preprocessing.json` has these numbers.'
    )
    if images.source == 'assumed':
        text += (
            ' Mean and std are not recorded in the checkpoint; they are those '
            'usual for ImageNet.'
        )
    return text


def _numbers(values: tuple[float, ...]) -> str:
    return ', '.join(f'{value:g}' for value in values)


def _figures(figures: dict[str, float]) -> str:
    if not figures:
        return 'None are recorded with the checkpoint.'
    table = _table({f'`{k}`': f'{v:.4g}' for k, v in figures.items()})
    return (
        'Measured of this checkpoint during training, on the validation '
        f'images of the run:\n\n{table}'
    )


def _table(rows: dict[str, str]) -> str:
    """A table of Markdown; empty if there are no rows."""
    if not rows:
        return ''
    lines = [
        f'| {k} | {printable(v).replace("|", "/")} |' for k, v in rows.items()
    ]
    return '\n'.join(('| | |', '|---|---|', *lines))
