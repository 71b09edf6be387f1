# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names of a ViT's parameters in mmpretrain and in other libraries.

DeiT, DINO, DINOv2, iBOT, MAE, MSN, MoCo v3 and the encoders in the authors'
release use timm's names.
"""

import re
from collections.abc import Iterable

# The weight that maps patches to tokens, (D, C, height, width).
PROJECTION = 'patch_embed.projection.weight'


class NameTable:
    """Translates names between mmpretrain's ViT and another library.

    Args:
        *rows (tuple[str, ...]): The beginning of a name in mmpretrain, then
            its equivalent in the other library, then other spellings that
            are also accepted. ``#`` stands for the number of a layer. The
            first row that fits a name is used. A beginning fits only if a
            dot or the end of the name follows it.
        spelling (tuple[str, str]): A pattern and its replacement, which are
            applied to a name of the other library before the rows.
    """

    def __init__(
        self, *rows: tuple[str, ...], spelling: tuple[str, str]
    ) -> None:
        self._rows = rows
        self._spelling = spelling

    def to_mmpretrain(self, name: str) -> str:
        """Turn a name of the other library into mmpretrain's.

        Names that fit no row stay as they are. transformers has separate
        tensors for queries, keys and values: their names become
        ``layers.0.attn.q.weight`` and the like, which mmpretrain does not
        have.
        """
        name = re.sub(*self._spelling, name)
        pairs = ((old, ours) for ours, *theirs in self._rows for old in theirs)
        return _replace_beginning(name, pairs)

    def from_mmpretrain(self, name: str, column: int = 1) -> str:
        """Turn a name of mmpretrain into one of the other library.

        Names that fit no row stay as they are.

        Args:
            name (str): The name.
            column (int): Index of the new name in each row. If a row is
                shorter, its last name is used. Defaults to 1, the first name
                of the other library.
        """
        pairs = ((row[0], row[: column + 1][-1]) for row in self._rows)
        return _replace_beginning(name, pairs)


def _replace_beginning(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    for old, new in pairs:
        pattern = re.escape(old).replace(r'\#', r'(\d+)') + r'(?=\.|$)'
        if re.match(pattern, name):
            return re.sub(pattern, new.replace('#', r'\1'), name, count=1)
    return name


TIMM = NameTable(
    ('patch_embed.projection', 'patch_embed.proj'),
    ('layers.#.ln1', 'blocks.#.norm1'),
    ('layers.#.ln2', 'blocks.#.norm2'),
    ('layers.#.attn.gamma1.weight', 'blocks.#.ls1.gamma', 'blocks.#.gamma_1'),
    ('layers.#.attn.q.bias', 'blocks.#.attn.q_bias'),
    ('layers.#.attn.v.bias', 'blocks.#.attn.v_bias'),
    ('layers.#.attn', 'blocks.#.attn'),
    ('layers.#.ffn.layers.0.0', 'blocks.#.mlp.fc1'),
    ('layers.#.ffn.layers.1', 'blocks.#.mlp.fc2'),
    ('layers.#.ffn.gamma2.weight', 'blocks.#.ls2.gamma', 'blocks.#.gamma_2'),
    # timm's name, then the one of DINOv3's authors.
    ('register_tokens', 'reg_token', 'storage_tokens'),
    ('rotary_periods', 'rope_embed.periods'),  # only in files of these authors
    ('ln1', 'norm'),
    ('ln2', 'fc_norm'),  # after mean pooling
    # DINOv2 trains its blocks in chunks: blocks.<chunk>.<block>.
    spelling=(r'^blocks\.\d+\.(?=\d+\.)', 'blocks.'),
)
_LAYER = 'encoder.layer.#'
# Columns of the names that `save_pretrained` writes. VIT is for ViTModel,
# DINOV2 for Dinov2Model and Dinov2WithRegistersModel, and DINOV3 for
# DINOv3ViTModel. Files of DINOv3ViTModel lack the `encoder.` before `layer`:
# `spelling` adds it on reading, and the export removes it. In memory, models
# of transformers 5 mix names of all three columns.
VIT, DINOV2, DINOV3 = 1, 2, 3
HUGGINGFACE = NameTable(
    ('cls_token', 'embeddings.cls_token'),
    ('mask_token', 'embeddings.mask_token'),
    ('register_tokens', 'embeddings.register_tokens'),
    ('pos_embed', 'embeddings.position_embeddings'),
    (
        'patch_embed.projection',
        'embeddings.patch_embeddings.projection',
        'embeddings.patch_embeddings.projection',
        'embeddings.patch_embeddings',
    ),
    *(
        (
            f'layers.#.attn.{part[0]}',
            f'{_LAYER}.attention.attention.{part}',
            f'{_LAYER}.attention.attention.{part}',
            f'{_LAYER}.attention.{part[0]}_proj',
        )
        for part in ('query', 'key', 'value')
    ),
    (
        'layers.#.attn.proj',
        f'{_LAYER}.attention.output.dense',
        f'{_LAYER}.attention.output.dense',
        f'{_LAYER}.attention.o_proj',
    ),
    ('layers.#.ln1', f'{_LAYER}.layernorm_before', f'{_LAYER}.norm1'),
    ('layers.#.ln2', f'{_LAYER}.layernorm_after', f'{_LAYER}.norm2'),
    (
        'layers.#.ffn.layers.0.0',
        f'{_LAYER}.intermediate.dense',
        f'{_LAYER}.mlp.fc1',
        f'{_LAYER}.mlp.up_proj',
    ),
    (
        'layers.#.ffn.layers.1',
        f'{_LAYER}.output.dense',
        f'{_LAYER}.mlp.fc2',
        f'{_LAYER}.mlp.down_proj',
    ),
    ('layers.#.attn.gamma1.weight', f'{_LAYER}.layer_scale1.lambda1'),
    ('layers.#.ffn.gamma2.weight', f'{_LAYER}.layer_scale2.lambda1'),
    ('ln1', 'layernorm', 'layernorm', 'norm'),
    spelling=(r'^layers?\.(?=\d+\.)', 'encoder.layer.'),
)
