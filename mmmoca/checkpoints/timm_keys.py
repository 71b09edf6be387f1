# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names of a ViT's parameters in timm and in mmpretrain.

timm's are those of the files of DeiT, DINO, DINOv2, iBOT, MAE, MSN, MoCo v3
and of the encoders of the authors' release, too.
"""

import re

from .name_tables import NameTable

__all__ = ['convert_timm_name', 'convert_to_timm_name']

_TABLE = NameTable(
    ('patch_embed.projection', 'patch_embed.proj'),
    ('layers.#.ln1', 'blocks.#.norm1'),
    ('layers.#.ln2', 'blocks.#.norm2'),
    ('layers.#.attn.gamma1.weight', 'blocks.#.ls1.gamma'),
    ('layers.#.attn', 'blocks.#.attn'),
    ('layers.#.ffn.layers.0.0', 'blocks.#.mlp.fc1'),
    ('layers.#.ffn.layers.1', 'blocks.#.mlp.fc2'),
    ('layers.#.ffn.gamma2.weight', 'blocks.#.ls2.gamma'),
    ('register_tokens', 'reg_token'),
    ('ln1', 'norm'),
    ('ln2', 'fc_norm'),  # after mean pooling
)
# DINOv2 trains its blocks in chunks: blocks.<chunk>.<block>.
_CHUNK = re.compile(r'^blocks\.\d+\.(?=\d+\.)')


def convert_timm_name(name: str) -> str:
    """Turn a timm-style ViT parameter name into mmpretrain's.

    Args:
        name (str): For example ``blocks.0.mlp.fc1.weight``.

    Returns:
        str: For example ``layers.0.ffn.layers.0.0.weight``.
    """
    return _TABLE.to_mmpretrain(_CHUNK.sub('blocks.', name))


def convert_to_timm_name(name: str) -> str:
    """Turn an mmpretrain ViT parameter name into timm's.

    Args:
        name (str): For example ``layers.0.ffn.layers.0.0.weight``.

    Returns:
        str: For example ``blocks.0.mlp.fc1.weight``.
    """
    return _TABLE.from_mmpretrain(name)
