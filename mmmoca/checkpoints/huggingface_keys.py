# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names of a ViT's parameters in Hugging Face's transformers.

Those of ``ViTModel`` and ``Dinov2Model``, as ``save_pretrained`` writes them
(and version 4 has them in memory), and as version 5 has them in memory.
"""

import re

from .name_tables import NameTable

__all__ = ['convert_huggingface_name', 'convert_to_huggingface_name']

_LAYER = 'encoder.layer.#'
# ViTModel's as they are saved, then the other spellings.
_TABLE = NameTable(
    ('cls_token', 'embeddings.cls_token'),
    ('mask_token', 'embeddings.mask_token'),
    ('register_tokens', 'embeddings.register_tokens'),
    ('pos_embed', 'embeddings.position_embeddings'),
    ('patch_embed.projection', 'embeddings.patch_embeddings.projection'),
    *(
        (
            f'layers.#.attn.{part[0]}',
            f'{_LAYER}.attention.attention.{part}',
            f'{_LAYER}.attention.{part[0]}_proj',
        )
        for part in ('query', 'key', 'value')
    ),
    (
        'layers.#.attn.proj',
        f'{_LAYER}.attention.output.dense',
        f'{_LAYER}.attention.o_proj',
    ),
    ('layers.#.ln1', f'{_LAYER}.layernorm_before', f'{_LAYER}.norm1'),
    ('layers.#.ln2', f'{_LAYER}.layernorm_after', f'{_LAYER}.norm2'),
    (
        'layers.#.ffn.layers.0.0',
        f'{_LAYER}.intermediate.dense',
        f'{_LAYER}.mlp.fc1',
    ),
    ('layers.#.ffn.layers.1', f'{_LAYER}.output.dense', f'{_LAYER}.mlp.fc2'),
    ('layers.#.attn.gamma1.weight', f'{_LAYER}.layer_scale1.lambda1'),
    ('layers.#.ffn.gamma2.weight', f'{_LAYER}.layer_scale2.lambda1'),
    ('ln1', 'layernorm'),
)
_MEMORY = re.compile(r'^layers\.(?=\d+\.)')


def convert_huggingface_name(name: str) -> str:
    """Turn a Hugging Face ViT parameter name into mmpretrain's.

    Args:
        name (str): For example ``encoder.layer.0.output.dense.weight``.

    Returns:
        str: For example ``layers.0.ffn.layers.1.weight``. Queries, keys and
        values stay apart, as ``layers.0.attn.q.weight`` and the like.
    """
    return _TABLE.to_mmpretrain(_MEMORY.sub('encoder.layer.', name))


def convert_to_huggingface_name(name: str) -> str:
    """Turn an mmpretrain ViT parameter name into that of ``ViTModel``.

    Args:
        name (str): For example ``layers.0.ffn.layers.1.weight``; queries,
            keys and values apart.

    Returns:
        str: For example ``encoder.layer.0.output.dense.weight``, as
        ``save_pretrained`` writes it.
    """
    return _TABLE.from_mmpretrain(name)
