# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Names of the authors' released checkpoints and the names used here."""

import re
from collections.abc import Mapping

from torch import Tensor

from .timm_keys import convert_timm_name

__all__ = ['convert_release_name', 'convert_release_state_dict']

_GENERATOR = {
    'generator.b0_fc': 'fc1',
    'generator.b0_bn': 'bn',
    'generator.b0_last_layer': 'fc2',
    'skip': 'skip',
}
_PREFIXES = {
    'encoder.': 'backbone.',
    'encoder_teacher.': 'teacher.',
    'encoder_pred.layers_w.0.': 'head.img_generator.',
    'decoder_pred.layers_w.0.': 'head.loc_generator.',
    'decoder_blocks_cls_pt.': 'neck.layers.',
    'norm_cls_pt.': 'neck.input_norm.',
    'decoder_embed_cls_pt.': 'neck.projection.',
    'decoder_norm_cls_pt.': 'neck.norm.',
}
_EXTRACTOR = 'bow_extractor.bow_extractor.0.'
_SINGLE = {
    'mask_token_cls_pt': 'neck.mask_token',
    f'{_EXTRACTOR}_embedding': 'codebook.words',
    f'{_EXTRACTOR}_embedding_ptr': 'codebook.pointer',
    f'{_EXTRACTOR}_dist_norm': 'codebook.msd',
}
# Constants, derived tables, and statistics that nothing reads: BatchNorm
# normalises over the current codebook, and mu of the previous step is mu.
_DROPPED = re.compile(
    r'decoder_pos_embed|(en|de)coder_pred\.scale'
    r'|.*\.b0_bn\.(running_|num_batches)'
    r'|.*\._(track_num_batches|dist_norm_prev)'
)


def convert_release_name(name: str) -> str | None:
    """Turn a name of the authors' full model into :class:`MOCA`'s.

    Args:
        name (str): Key of the released state dict.

    Returns:
        str, optional: Key here; None for state that has no counterpart.

    Raises:
        KeyError: If the name is none of the released model's.
    """
    if _DROPPED.match(name):
        return None
    if name in _SINGLE:
        return _SINGLE[name]
    for old, new in _PREFIXES.items():
        if not name.startswith(old):
            continue
        rest = name[len(old) :]
        if new in ('backbone.', 'teacher.'):
            return new + convert_timm_name(rest)
        if new == 'neck.layers.':
            return 'neck.' + convert_timm_name(f'blocks.{rest}')
        module, _, parameter = rest.rpartition('.')
        return new + (f'{_GENERATOR[module]}.' if module else '') + parameter
    raise KeyError(f'{name!r} is not a parameter of the released MOCA model')


def convert_release_state_dict(
    state_dict: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Convert the authors' full model to :class:`MOCA`'s state dict.

    Args:
        state_dict (Mapping[str, Tensor]): Released names.

    Returns:
        Dict[str, Tensor]: Names and shapes of :class:`MOCA`.

    Raises:
        KeyError: If a name is none of the released model's.
    """
    converted = {}
    for name, value in state_dict.items():
        new_name = convert_release_name(name)
        if new_name in ('codebook.pointer', 'codebook.msd'):
            value = value.reshape(())
        if new_name is not None:
            converted[new_name] = value
    return converted
