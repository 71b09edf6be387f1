# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names of a ViT's parameters in Hugging Face's transformers.

Those of ``ViTModel`` and ``Dinov2Model``, as ``save_pretrained`` writes them
(and version 4 has them in memory), and as version 5 has them in memory.
"""

import re

__all__ = ['convert_huggingface_name']

_HUGGINGFACE_VIT = (
    (r'^embeddings\.patch_embeddings\.', 'patch_embed.'),
    (r'^embeddings\.position_embeddings$', 'pos_embed'),
    (r'^embeddings\.', ''),
    (r'^(encoder\.layer|layers)\.(\d+)\.', r'layers.\2.'),
    (r'\.attention\.attention\.(q)uery\.', r'.attn.\1.'),
    (r'\.attention\.attention\.(k)ey\.', r'.attn.\1.'),
    (r'\.attention\.attention\.(v)alue\.', r'.attn.\1.'),
    (r'\.attention\.([qkv])_proj\.', r'.attn.\1.'),
    (r'\.attention\.(output\.dense|o_proj)\.', '.attn.proj.'),
    (r'\.(layernorm_before|norm1)\.', '.ln1.'),
    (r'\.(layernorm_after|norm2)\.', '.ln2.'),
    (r'\.(intermediate\.dense|mlp\.fc1)\.', '.ffn.layers.0.0.'),
    (r'\.(output\.dense|mlp\.fc2)\.', '.ffn.layers.1.'),
    (r'\.layer_scale1\.lambda1$', '.attn.gamma1.weight'),
    (r'\.layer_scale2\.lambda1$', '.ffn.gamma2.weight'),
    (r'^layernorm\.', 'ln1.'),
)


def convert_huggingface_name(name: str) -> str:
    """Turn a Hugging Face ViT parameter name into mmpretrain's.

    Args:
        name (str): For example ``encoder.layer.0.output.dense.weight``.

    Returns:
        str: For example ``layers.0.ffn.layers.1.weight``. Queries, keys and
        values stay apart, as ``layers.0.attn.q.weight`` and the like.
    """
    for pattern, replacement in _HUGGINGFACE_VIT:
        name = re.sub(pattern, replacement, name)
    return name
