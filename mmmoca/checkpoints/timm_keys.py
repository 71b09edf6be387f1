# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names of a ViT's parameters in timm and in mmpretrain.

timm's are those of the files of DeiT, DINO, DINOv2, iBOT, MAE, MSN, MoCo v3
and of the encoders of the authors' release, too.
"""

import re

__all__ = ['convert_timm_name', 'convert_to_timm_name']

_TIMM_VIT = (
    (r'^patch_embed\.proj\.', 'patch_embed.projection.'),
    # DINOv2 trains its blocks in chunks: blocks.<chunk>.<block>.
    (r'^blocks\.(?:\d+\.)?(\d+)\.', r'layers.\1.'),
    (r'\.norm([12])\.', r'.ln\1.'),
    (r'\.mlp\.fc1\.', '.ffn.layers.0.0.'),
    (r'\.mlp\.fc2\.', '.ffn.layers.1.'),
    (r'\.ls1\.gamma$', '.attn.gamma1.weight'),
    (r'\.ls2\.gamma$', '.ffn.gamma2.weight'),
    (r'^reg_token$', 'register_tokens'),
    (r'^norm\.', 'ln1.'),
    (r'^fc_norm\.', 'ln2.'),  # after mean pooling
)
_TO_TIMM = (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^ln1\.', 'norm.'),
    (r'^ln2\.', 'fc_norm.'),
    (r'^layers\.(\d+)\.', r'blocks.\1.'),
    (r'\.ln([12])\.', r'.norm\1.'),
    (r'\.ffn\.layers\.0\.0\.', '.mlp.fc1.'),
    (r'\.ffn\.layers\.1\.', '.mlp.fc2.'),
)


def convert_timm_name(name: str) -> str:
    """Turn a timm-style ViT parameter name into mmpretrain's.

    Args:
        name (str): For example ``blocks.0.mlp.fc1.weight``.

    Returns:
        str: For example ``layers.0.ffn.layers.0.0.weight``.
    """
    for pattern, replacement in _TIMM_VIT:
        name = re.sub(pattern, replacement, name)
    return name


def convert_to_timm_name(name: str) -> str:
    """Turn an mmpretrain ViT parameter name into timm's.

    Args:
        name (str): For example ``layers.0.ffn.layers.0.0.weight``.

    Returns:
        str: For example ``blocks.0.mlp.fc1.weight``.
    """
    for pattern, replacement in _TO_TIMM:
        name = re.sub(pattern, replacement, name)
    return name
