# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds the ViT in a checkpoint of any known layout."""

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
    r'|layers\.\d+\.attn\.qkv\.bias_mask'  # in the files of DINOv3's authors
)
# Names of heads and decoders, for files in which no prefix separates them from
# the encoder. Any other unknown tensor may change what the encoder computes,
# so it is refused.
_OTHER = re.compile(
    r'(head|fc|decoder|mask_token|masked_embed|pre_logits|pooler|proj|pred'
    r'|local_cls_norm'  # a norm of DINOv3 for small crops in training
    r'|n_averaged$|steps$)'  # counters of weight averaging
)


class Backbone(NamedTuple):
    """A ViT found in a checkpoint.

    Attributes:
        state_dict (dict[str, Tensor]): Its tensors, under the names of
            ``mmpretrain.VisionTransformer``, without a prefix.
        layout (str): 'mmmoca' (a pretraining run of this package), 'moca'
            (the authors' MOCA), 'mmpretrain', 'huggingface', 'dino' (also
            iBOT and runs of DINOv2), 'msn', 'mocov3', 'mae', 'dinov2' (also
            the files of DINOv3's authors) or 'timm' (also DeiT). For a
            file that our tools made from another one, it is the layout of that
            other file.
        which (str): 'teacher', 'student', or 'only' if the file has one
            encoder and does not say which of the two it is.
        ignored (list[str]): Names of tensors that do not belong to the
            encoder, such as those of a head.
        grid (tuple[int, int], optional): Rows and columns of patches that
            its positions are for, see :func:`grid_of`. None if unknown.
        changes (tuple[str, ...]): Sentences for a log: how ``state_dict``
            differs from the encoder in the file, and whether its weights are
            raw or averaged, if the file has both.
        record (Mapping): What the file records about the encoder, see
            :func:`record_of`; or what the JSON files in the same folder say,
            see :func:`record_beside`.
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
        """str, optional: The encoder's feature for evaluation, 'avg' or 'cls'.

        It is what the file records. Without a record it is 'avg' for MOCA's
        encoders and None for those of other methods.
        """
        recorded = self.record.get('feature')
        if recorded in ('avg', 'cls'):
            return recorded
        return 'avg' if self.layout in ('mmmoca', 'moca') else None

    @property
    def img_size(self) -> tuple[int, int]:
        """tuple[int, int]: Height and width in pixels of the input images.

        Raises:
            CheckpointError: If the patch grid is not known.
        """
        if self.grid is None:
            patches = self.state_dict['pos_embed'].shape[1] - 1
            raise CheckpointError(
                f'the encoder has {patches} patches, which is not a square '
                'number, and the file records no grid: give its patch rows '
                'and columns (--source-grid H W)'
            )
        patch = self.state_dict[PROJECTION].shape[2:]
        return tuple(n * p for n, p in zip(self.grid, patch))

    def resized(self, grid: tuple[int, int], mode: str) -> 'Backbone':
        """Return a copy with positions for another patch grid.

        Args:
            grid (tuple[int, int]): Rows and columns of patches.
            mode (str): Interpolation, 'bicubic' or 'bilinear'.

        Returns:
            Backbone: The copy; or this backbone, if its grid is not known.
        """
        if self.grid is None:
            return self
        positions = self.state_dict.get('pos_embed')
        if positions is None:  # rotary positions fit any grid
            return self._replace(grid=grid)
        # As in mmpretrain's forward pass, there is no antialiasing.
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
            student, unless it says that this encoder is the student.
        weights (str, optional): 'raw' or 'averaged' (EMA), for a file that
            has both. Defaults to None: the weights under ``state_dict`` or
            ``model``, which other programs load.

    Returns:
        Backbone: The ViT. Its tensors are copies.

    Raises:
        CheckpointError: If the file is missing or damaged, and for the reasons
            in :func:`find_backbone`.
        OSError: If the system does not let the file be read.
        ValueError: See :func:`find_backbone`.
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
    """Find the ViT in the content of a checkpoint file.

    The ViT's tensors are renamed and checked, and then brought into the form
    of mmpretrain's ViT by :func:`normalise`.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        which (str): As in :func:`read_backbone`.
        source (str): Path of the file, or another name for errors. JSON
            files in the folder of this path are read too.
        weights (str, optional): As in :func:`read_backbone`.

    Returns:
        Backbone: The ViT. Its tensors may share memory with ``checkpoint``.

    Raises:
        CheckpointError: If the file has no ViT, or not the one asked for; or
            if that ViT has no [CLS] or no positions, has weights that are not
            floating-point numbers, or has parts that a plain ViT lacks. A
            missing final norm is not an error here, because some files have
            none. Functions that need one, such as :func:`build_vit`, check
            for it.
        ValueError: If ``which`` is neither 'teacher' nor 'student'.
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
    # These changes are due to LayerScale or rotary positions (DINOv2, DINOv3).
    scaled = bool(changes)
    if location.choice is not None:
        changes.append(location.choice)
    if beside:
        words = dict(
            num_heads='number of heads',
            norm_eps='eps of norms',
            preprocessing='mean and std',
        )
        said = ' and '.join(words[key] for key in beside)
        changes.append(f'JSON files in its folder give its {said}')
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
    """Return the renamed encoder, the ignored names, and the unknown ones."""
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
    """Refuse an encoder with parts that mmpretrain's plain ViT lacks."""
    hidden, contracted = (
        state_dict.get(f'layers.0.ffn.layers.{part}.weight')
        for part in ('0.0', '1')
    )
    gated = hidden is not None and contracted is not None
    if gated and hidden.shape[:1] != contracted.shape[1:2]:
        unknown = [*unknown, 'a gated MLP']
    if state_dict[PROJECTION].ndim != 4:
        unknown = [*unknown, 'a patch projection other than a 2-D convolution']
    if unknown:
        raise CheckpointError(
            f'the encoder in {source} has {listed(unknown)}, which a plain '
            'ViT does not have. Encoders with a distillation token, relative '
            'positions or a gated MLP (SwiGLU) cannot be loaded'
        )


def _check_whole(state_dict: dict[str, Tensor], source: str) -> None:
    """Refuse an encoder that lacks a part that every ViT has."""
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
            'ViTs with a [CLS] token, and with either absolute positions or '
            "DINOv3's rotary positions, can be loaded (I-JEPA's ViTs, for "
            'example, cannot)'
        )
