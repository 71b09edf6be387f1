# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The README of an export, in the form of the Hugging Face Hub."""

from mmmoca.messages import printable
from mmmoca.version import __version__

from .encoder import Encoder

__all__ = ['model_card']

_CARD = """\
---
{front}
---

# {title}

Made from `{source}` (SHA-256 {sha256}), {which} encoder, by mmmoca {version}.

```python
{usage}
```

Features are those after the final norm: [CLS], [AVG] (the mean patch token)
or the patch tokens themselves. `preprocessing.json` says how images are
prepared for it: {channels} channels ({order}){assumed}.

Licence of the weights: {licence}.
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
    encoder: Encoder, library: str, usage: str, license: str | None = None
) -> str:
    """Describe an export by what its checkpoint records.

    Args:
        encoder (Encoder): What is exported.
        library (str): What the Hub calls the library of the format.
        usage (str): Python code that loads it.
        license (str, optional): Of the weights, as an SPDX identifier. It is
            never guessed.

    Returns:
        str: Markdown after a front matter of YAML.
    """
    about, images, arch = encoder.record, encoder.preprocessing, encoder.arch
    ours = about['layout'] in ('mmmoca', 'moca')
    front = [
        *([f'license: {license.lower()}'] if license else []),
        f'library_name: {library}',
        'pipeline_tag: image-feature-extraction',
        'tags:',
        *(['- moca'] if ours else []),
        '- self-supervised-learning',
        '- vision-transformer',
        '- mmmoca',
    ]
    height, width = encoder.patch_size
    assumed = ', mean and std usual for ImageNet, as none are recorded'
    return _CARD.format(
        front='\n'.join(front),
        title=f'{"MOCA " if ours else ""}ViT of {arch["num_layers"]} layers '
        f'of {arch["embed_dims"]}, patches of {height} x {width}',
        source=printable(about['source']),
        sha256=about['sha256'],
        which=about['which'],
        version=__version__,
        usage=usage,
        channels=encoder.channels,
        order=images.channel_order,
        assumed=assumed if images.source == 'assumed' else '',
        licence=license or 'not stated',
        citation=_CITATION if ours else '',
    )
