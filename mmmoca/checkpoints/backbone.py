# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The ViT of a checkpoint of any known layout."""

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mmpretrain.models.utils import resize_pos_embed
from torch import Tensor

from mmmoca.messages import listed

from .beside import record_beside
from .errors import CheckpointError
from .locate import Location, layout_of, locate
from .names import HUGGINGFACE, PROJECTION, TIMM
from .normal_form import (
    check_floating,
    check_shapes,
    grid_of,
    normalise,
)
from .read import read_checkpoint
from .record import record_of

_TABLES = dict(timm=TIMM, huggingface=HUGGINGFACE)
_ENCODER = re.compile(
    r'cls_token|pos_embed|register_tokens|rotary_periods'
    r'|(patch_embed\.projection|ln[12]|layers\.\d+\.(ln[12]|attn\.(qkv|[qkv]|proj)|ffn\.layers\.(0\.0|1)))'
    r'\.(weight|bias)|layers\.\d+\.(attn\.gamma1|ffn\.gamma2)\.weight'
    r'|layers\.\d+\.attn\.qkv\.bias_mask'  # of DINOv3's authors
)
# Heads and decoders that follow the encoder, in files that do not tell them
# apart by a prefix; anything else unknown changes what the encoder computes.
_OTHER = re.compile(
    r'(head|fc|decoder|mask_token|masked_embed|pre_logits|pooler|proj|pred'
    r'|local_cls_norm'  # DINOv3's, of small crops in training
    r'|n_averaged$|steps$)'  # counters of averages
)


class Backbone(NamedTuple):
    """A ViT found in a checkpoint.

    Attributes:
        state_dict (dict[str, Tensor]): Under the names of
            ``mmpretrain.VisionTransformer``, without a prefix.
        layout (str): 'mmmoca' (a pretraining run of this package), 'moca'
            (the authors'), 'mmpretrain', 'huggingface', 'dino' (also iBOT
            and runs of DINOv2), 'msn', 'mocov3', 'mae', 'dinov2' (also
            DINOv3's authors) or 'timm' (also DeiT). Files made by our tools
            keep their source's layout.
        which (str): 'teacher', 'student', or 'only' where the file has one
            encoder and does not say where it is from.
        ignored (list[str]): Other names of the file, as a head's.
        grid (tuple[int, int], optional): Rows and columns of its position
            embedding: as the file records, else square where their number
            allows it, else None.
        changes (tuple[str, ...]): How ``state_dict`` differs from the file's
            encoder and which of two sets of weights it is, in words for a
            log.
        record (Mapping): What this package recorded of it, see
            :func:`record_of`.
    """

    state_dict: dict[str, Tensor]
    layout: str
    which: str
    ignored: list[str]
    grid: tuple[int, int] | None
    changes: tuple[str, ...] = ()
    record: Mapping = MappingProxyType({})

    @property
    def feature(self) -> str | None:
        """str, optional: What MOCA's encoder is judged by, 'avg' or 'cls'.

        As its run recorded; None for encoders of other methods.
        """
        recorded = self.record.get('feature')
        if recorded in ('avg', 'cls'):
            return recorded
        return 'avg' if self.layout in ('mmmoca', 'moca') else None

    @property
    def img_size(self) -> tuple[int, int]:
        """tuple[int, int]: Height and width in pixels of its images.

        Raises:
            CheckpointError: If the patch grid is not known.
        """
        if self.grid is None:
            patches = self.state_dict['pos_embed'].shape[1] - 1
            raise CheckpointError(
                f'the encoder has {patches} patches, no square, and records '
                'no grid: give its patch rows and columns (--source-grid H W)'
            )
        patch = self.state_dict[PROJECTION].shape[2:]
        return tuple(n * p for n, p in zip(self.grid, patch))

    def resized(self, grid: tuple[int, int], mode: str) -> 'Backbone':
        """Return the same with positions for another patch grid.

        Args:
            grid (tuple[int, int]): Rows and columns of patches.
            mode (str): Interpolation, 'bicubic' or 'bilinear'.

        Returns:
            Backbone: The same if its own grid is not known.
        """
        if self.grid is None:
            return self
        positions = self.state_dict.get('pos_embed')
        if positions is None:  # rotary ones are for any grid
            return self._replace(grid=grid)
        # mmpretrain resizes without antialiasing in its forward pass, too.
        positions = resize_pos_embed(positions, self.grid, grid, mode)
        state_dict = self.state_dict | dict(pos_embed=positions)
        return self._replace(state_dict=state_dict, grid=grid)


def read_backbone(
    path: str | os.PathLike, which: str = 'teacher', weights: str | None = None
) -> Backbone:
    """Read the ViT of a checkpoint file of any known layout.

    Args:
        path (str | os.PathLike): The file, see :func:`read_checkpoint`.
        which (str): 'teacher' (default, as in all of the paper's
            evaluations) or 'student'. A file with one encoder has no
            student, unless it was extracted as one.
        weights (str, optional): 'raw' or 'averaged' (EMA), of a file that
            has both. Defaults to None, those that other programs load: those
            under ``state_dict`` or ``model``.

    Returns:
        Backbone: Its tensors, named as ``mmpretrain.VisionTransformer``'s.

    Raises:
        CheckpointError: If the file cannot be read; else see
            :func:`find_backbone`.
    """
    checkpoint = read_checkpoint(path, lazy=True)
    backbone = find_backbone(checkpoint, which, os.fspath(path), weights)
    state_dict = {k: v.clone() for k, v in backbone.state_dict.items()}
    return backbone._replace(state_dict=state_dict)


def find_backbone(
    checkpoint: dict,
    which: str = 'teacher',
    source: str = 'the checkpoint',
    weights: str | None = None,
) -> Backbone:
    """Find the ViT in a checkpoint that was read.

    It is located, renamed, checked, and brought into one form, see
    :func:`normalise`.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        which (str): As in :func:`read_backbone`.
        source (str): Its file, or what to call it in errors.
        weights (str, optional): As in :func:`read_backbone`.

    Returns:
        Backbone: Its tensors, named as ``mmpretrain.VisionTransformer``'s.

    Raises:
        CheckpointError: If the file has no ViT, not the one asked for, or
            one without [CLS] or positions, with integer or complex weights,
            or with parts that a plain ViT does not have. A final norm is not
            required, as some files have none: what needs one checks for it,
            such as :func:`build_vit`.
        ValueError: If ``which`` is neither of its choices.
    """
    record = record_of(checkpoint.get('meta'))
    location = locate(checkpoint, which, weights, record.get('which'), source)
    beside = {} if record else record_beside(source, location.naming)
    record = record or beside
    tensors, ignored, unknown = _rename(location)
    check_floating(tensors, f'the encoder in {source}')
    _check_plain(tensors, unknown, source)
    check_shapes(tensors, source)
    state_dict, changes = normalise(tensors, record, location.naming, source)
    _check_whole(state_dict, source)
    scaled = bool(changes)  # as DINOv2's and DINOv3's encoders
    if location.choice is not None:
        changes.append(location.choice)
    if beside:
        words = dict(
            num_heads='heads',
            norm_eps='eps of norms',
            preprocessing='mean and std',
        )
        said = ' and '.join(words[key] for key in beside)
        changes.append(f'its {said} are from the JSON files beside it')
    return Backbone(
        state_dict,
        record.get('layout') or layout_of(location, ignored, scaled),
        location.role,
        ignored,
        grid_of(state_dict, record.get('grid')),
        tuple(changes),
        record,
    )


def _rename(
    location: Location,
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """Return the renamed encoder, names to ignore, and unknown names."""
    table = _TABLES.get(location.naming)
    tensors, ignored, unknown = {}, [], []
    for name, value in location.tensors.items():
        new = table.to_mmpretrain(name) if table else name
        if _ENCODER.fullmatch(new):
            tensors[new] = value
        elif _OTHER.match(new):
            ignored.append(name)
        else:
            unknown.append(name)
    return tensors, ignored, unknown


def _check_plain(
    state_dict: dict[str, Tensor], unknown: list[str], source: str
) -> None:
    """Refuse an encoder that mmpretrain's plain ViT does not compute."""
    hidden, contracted = (
        state_dict.get(f'layers.0.ffn.layers.{part}.weight')
        for part in ('0.0', '1')
    )
    gated = hidden is not None and contracted is not None
    if gated and hidden.shape[:1] != contracted.shape[1:2]:
        unknown = [*unknown, 'a gated MLP']
    if state_dict[PROJECTION].ndim != 4:
        unknown = [*unknown, 'patches that are no 2-D convolution']
    if unknown:
        raise CheckpointError(
            f'the encoder in {source} has {listed(unknown)}, which a plain '
            'ViT does not have. Encoders with a distillation token, relative '
            'positions or a gated MLP (SwiGLU) are not read'
        )


def _check_whole(state_dict: dict[str, Tensor], source: str) -> None:
    """Refuse an encoder without a part that all of them have."""
    needed = (
        'cls_token',
        'pos_embed',
        'layers.0.attn.qkv.weight',
        'layers.0.ffn.layers.0.0.weight',
    )
    missing = [name for name in needed if name not in state_dict]
    if 'rotary_periods' in state_dict:
        missing.remove('pos_embed')
    if missing:
        raise CheckpointError(
            f'the encoder in {source} has no {" and no ".join(missing)}: only '
            "ViTs with a [CLS] token and absolute positions, or DINOv3's, are "
            'read (not those of I-JEPA, for one)'
        )
