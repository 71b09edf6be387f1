# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finding the ViT in a checkpoint of any layout known."""

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from .encoders import choose_encoder, layout_of
from .grids import position_grid
from .huggingface_keys import convert_huggingface_name
from .plain_vit import (
    fold_layer_scale,
    join_qkv,
    prepend_class_position,
)
from .reading import CheckpointError, listed, read_checkpoint, tensors_of
from .records import record_of
from .timm_keys import convert_timm_name

__all__ = ['Backbone', 'find_backbone', 'read_backbone']

_TO_MMPRETRAIN: dict[str, Callable[[str], str]] = {
    'timm': convert_timm_name,
    'mmpretrain': str,
    'huggingface': convert_huggingface_name,
}
_ENCODER = re.compile(
    r'cls_token|pos_embed|(patch_embed\.projection|ln[12]'
    r'|layers\.\d+\.(ln[12]|attn\.(qkv|[qkv]|proj)|ffn\.layers\.(0\.0|1)))'
    r'\.(weight|bias)|layers\.\d+\.(attn\.gamma1|ffn\.gamma2)\.weight'
)
# Heads and decoders that follow the encoder, in files that do not tell them
# apart by a prefix; anything else unknown changes what the encoder computes.
_OTHER = re.compile(
    r'(head|fc|decoder|mask_token|masked_embed|pre_logits|pooler|proj|pred)'
)


class Backbone(NamedTuple):
    """A ViT found in a checkpoint.

    Attributes:
        state_dict (Dict[str, Tensor]): Under the names of
            ``mmpretrain.VisionTransformer``, without a prefix.
        layout (str): 'mmmoca' (a pretraining run of this package), 'moca'
            (the authors'), 'mmpretrain', 'huggingface', 'dino' (iBOT's and
            runs of DINOv2, too), 'msn', 'mocov3', 'mae', 'dinov2' or 'timm'
            (DeiT's, too).
        which (str): 'teacher', 'student', or 'only' where the file has one
            encoder.
        ignored (List[str]): Names beside it that are left out, as a head's.
        grid (Tuple[int, int], optional): Rows and columns of its position
            embedding: as the file records, else square where their number
            allows it, else None.
        changes (Tuple[str, ...]): What of the file's encoder is built
            otherwise in ``state_dict``, in words for a log.
        meta (Dict): What the file says of itself as ``meta``, such as
            :func:`run_record`; {} if nothing.
    """

    state_dict: dict[str, Tensor]
    layout: str
    which: str
    ignored: list[str]
    grid: tuple[int, int] | None
    changes: tuple[str, ...] = ()
    meta: Mapping = MappingProxyType({})

    @property
    def origin(self) -> tuple[str, str]:
        """Tuple[str, str]: Layout and encoder of the first file.

        That is the one that a tool of this package converted, if it did.
        """
        record = record_of(self.meta)
        which = self.which if self.which != 'only' else record.get('which')
        return record.get('layout') or self.layout, which or 'only'

    @property
    def feature(self) -> str | None:
        """str, optional: What MOCA's encoder is judged by, 'avg' or 'cls'.

        As its run recorded; None of the encoders of others.
        """
        recorded = record_of(self.meta).get('feature')
        if recorded in ('avg', 'cls'):
            return recorded
        return 'avg' if self.origin[0] in ('mmmoca', 'moca') else None


def read_backbone(path: str | os.PathLike, which: str = 'teacher') -> Backbone:
    """Read the ViT of a checkpoint file of any layout known.

    Args:
        path (str | os.PathLike): The file, see :func:`read_checkpoint`.
        which (str): 'teacher' (default, as all of the paper's evaluations)
            or 'student'. A file with one encoder has no student, unless it
            was extracted as one.

    Returns:
        Backbone: Its tensors, named as ``mmpretrain.VisionTransformer``'s.

    Raises:
        CheckpointError: If the file cannot be read, or see
            :func:`find_backbone`.
    """
    checkpoint = read_checkpoint(path, lazy=True)
    backbone = find_backbone(checkpoint, which, os.fspath(path))
    state_dict = {k: v.clone() for k, v in backbone.state_dict.items()}
    return backbone._replace(state_dict=state_dict)


def find_backbone(
    checkpoint: dict,
    which: str = 'teacher',
    source: str = 'the checkpoint',
    drop_registers: bool = False,
) -> Backbone:
    """Find the ViT in what a checkpoint file holds.

    LayerScale becomes a part of the weights that it scales, see
    :func:`fold_layer_scale`.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        which (str): As in :func:`read_backbone`.
        source (str): What to call it in errors.
        drop_registers (bool): Leave registers out, although the encoder
            computes something else without them. Defaults to False, an
            error.

    Returns:
        Backbone: Its tensors, named as ``mmpretrain.VisionTransformer``'s.

    Raises:
        CheckpointError: If the file has no ViT, not the one asked for, or
            one without [CLS] or positions, or with parts that a plain ViT
            has not. A final norm is not required: some files have none, and
            :func:`~mmmoca.checkpoints.check_fit` is for their users.
        ValueError: If ``which`` is neither of its choices.
    """
    if which not in ('teacher', 'student'):
        raise ValueError(
            f"which must be 'teacher' or 'student', but got {which!r}"
        )
    groups = tensors_of(checkpoint)
    meta = checkpoint.get('meta')
    meta = meta if isinstance(meta, dict) else {}
    # The only encoder of a file may be the student of another.
    extracted = record_of(meta).get('which') == which
    encoder, role, all_found = choose_encoder(
        groups, 'teacher' if extracted else which, source
    )
    to_mmpretrain = _TO_MMPRETRAIN[encoder.naming]
    state_dict, ignored, unknown, changes = {}, [], [], []
    for name, value in groups[encoder.container].items():
        if not name.startswith(encoder.prefix):
            continue
        name = name.removeprefix(encoder.prefix)
        new = to_mmpretrain(name)
        if _ENCODER.fullmatch(new):
            state_dict[new] = value
        elif new == 'register_tokens' and drop_registers:
            ignored.append(name)
            changes.append(
                f'its {value.shape[-2]} registers are left out, without '
                'which it does not compute what it was trained to'
            )
        elif _OTHER.match(new):
            ignored.append(name)
        else:
            unknown.append(name)
    join_qkv(state_dict, source)
    _check_plain(state_dict, unknown, source)
    if fold_layer_scale(state_dict):
        changes.append(
            'its LayerScale is multiplied into the projections, which '
            'computes the same'
        )
    if encoder.naming == 'timm' and changes:
        prepend_class_position(state_dict)
    return Backbone(
        state_dict,
        layout_of(encoder, all_found, ignored, bool(changes)),
        role,
        ignored,
        position_grid(meta, state_dict['pos_embed']),
        tuple(changes),
        meta,
    )


def _check_plain(
    state_dict: dict[str, Tensor], unknown: list[str], source: str
) -> None:
    """Refuse an encoder that the models here would not compute alike."""
    hidden, contracted = (
        state_dict.get(f'layers.0.ffn.layers.{part}.weight')
        for part in ('0.0', '1')
    )
    gated = hidden is not None and contracted is not None
    if gated and len(hidden) != contracted.shape[1]:
        unknown = [*unknown, 'an MLP of which one half scales the other']
    if unknown:
        raise CheckpointError(
            f'the encoder in {source} has {listed(unknown)}, which a plain '
            'ViT has not. Encoders with registers, a distillation token, '
            'relative or rotary positions or a gated MLP (SwiGLU) are not '
            'read: a config without these parts would load the rest and '
            'compute something else'
        )
    missing = [n for n in ('cls_token', 'pos_embed') if n not in state_dict]
    if missing:
        raise CheckpointError(
            f'the encoder in {source} has no {" and no ".join(missing)}: only '
            'ViTs with a [CLS] token and absolute positions are read (those '
            'of I-JEPA, for one, have no [CLS])'
        )
