# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fits the initial checkpoint of a run to its model.

``load_from=FILE`` fills the backbone of a model from a file of any layout.
``load_from='mmmoca-start://FILE'`` is for pretraining. It fills the student
and the teacher. If the file is from a MOCA run, it also fills the rest of
the model.
"""

import math
import os
from collections import Counter
from collections.abc import Mapping

from mmpretrain.models.backbones import VisionTransformer
from mmpretrain.models.utils import resize_pos_embed
from torch import Tensor, nn

from .backbone import find_backbone
from .errors import CheckpointError
from .fit import (
    TEACHER_CLS,
    check_fit,
    fit,
    loaded_names,
    without_final_norm,
)
from .locate import tensors_of
from .release import read_converted
from .write import backbone_checkpoint

START_SCHEME = 'mmmoca-start://'
_ENCODERS = ('backbone', 'teacher')


def load_start(
    model: nn.Module, file: str | os.PathLike
) -> tuple[list[str], dict]:
    """Fill a model for pretraining from a file of any known layout.

    If the file is from a MOCA run, its teacher fills the teacher and its
    student fills the student. From any other file, one encoder fills both: the
    file's teacher if it has one, otherwise its only encoder. The position
    embedding is resized to the model's patch grid, and the patch projection is
    adapted to the model's number of channels. The codebook, the decoder and
    the prototype generators keep their initial values if those in the file do
    not fit the model.

    Args:
        model (nn.Module): A :class:`MOCA`.
        file (str | os.PathLike): The file.

    Returns:
        tuple[list[str], dict]: Sentences for a log, which say how many
        tensors of each part of the model are filled and what was changed; and
        the record of the file, see :attr:`Backbone.record`.

    Raises:
        CheckpointError: If the model has no teacher, if no ViT can be read
            from the file (see :func:`read_backbone`), or if the architectures
            differ (see :func:`check_fit`).
    """
    own = model.state_dict()
    if TEACHER_CLS not in own:
        raise CheckpointError(
            f'{START_SCHEME} is for pretraining, and {type(model).__name__} '
            f"has no teacher: write load_from='mmmoca-teacher://{file}'"
        )
    file = os.fspath(file)
    checkpoint = read_converted(file, lazy=True)
    teacher = student = find_backbone(checkpoint, 'teacher', file)
    both = {f'{role}.cls_token' for role in _ENCODERS}
    groups = tensors_of(checkpoint).values()
    state = next((group for group in groups if group.keys() >= both), {})
    if state:
        student = find_backbone(checkpoint, 'student', file)
        state = with_resized_mean(state, teacher.grid, model)
    other = {
        _part(name)
        for name, value in state.items()
        if name not in own or own[name].shape != value.shape
    }.difference(_ENCODERS)
    words = state.get('codebook.words')
    left_out = other.union(_ENCODERS)
    state = {k: v for k, v in state.items() if _part(k) not in left_out}
    unfit = 'does not fit the model and is not loaded'
    changes = list(teacher.changes)
    changes += [f'its {part} {unfit}' for part in sorted(other)]
    if 'codebook' in other and words is not None:
        changes.append(f'its codebook has num_words={len(words)}')
    for role, encoder in zip(_ENCODERS, (student, teacher)):
        encoder, fitted = fit(encoder, getattr(model, role))
        state |= {f'{role}.{k}': v for k, v in encoder.state_dict.items()}
    changes += fitted
    known = dict(num_heads=encoder.record.get('num_heads'), grid=encoder.grid)
    check_fit(model, state, dict(mmmoca=known), file)
    model.load_state_dict(state, strict=False)
    parts = Counter(map(_part, own)), Counter(map(_part, own.keys() & state))
    filled = ', '.join(f'{p} {parts[1][p]}/{parts[0][p]}' for p in parts[0])
    source = os.path.basename(file)
    report = f'{source} (layout {teacher.layout}) fills {filled}'
    lines = [report, *(f'{source}: {change}' for change in changes)]
    return lines, teacher.record


def with_resized_mean(
    state: Mapping[str, Tensor],
    grid: tuple[int, int] | None,
    model: nn.Module,
) -> Mapping[str, Tensor]:
    """Resize the codebook's mean tokens to the patch grid of a model.

    A codebook with ``centre`` has one mean token for each position.

    Args:
        state (Mapping[str, Tensor]): Tensors of a saved MOCA model.
        grid (tuple[int, int], optional): Rows and columns of patches of the
            saved model.
        model (nn.Module): The MOCA model that will load the tensors.

    Returns:
        Mapping[str, Tensor]: The tensors, with mean tokens that fit.
    """
    mean = state.get('codebook.token_mean')
    if mean is None or grid is None or len(mean) != math.prod(grid):
        return state
    target = model.teacher.patch_resolution
    resized = resize_pos_embed(mean[None], grid, target, 'bilinear', 0)[0]
    return {**state, 'codebook.token_mean': resized}


def take_backbone(
    checkpoint: dict, model: nn.Module, source: str = 'the checkpoint'
) -> list[str]:
    """Reduce a checkpoint to the weights of the model's backbone.

    A checkpoint of the same model, or one that shares a neck or a head with
    the model, is not changed.

    Args:
        checkpoint (dict): What MMEngine is about to load. Changed in place.
        model (nn.Module): A model without a teacher. If its backbone is
            mmpretrain's ViT, the weights are fitted to it.
        source (str): As in :func:`find_backbone`.

    Returns:
        list[str]: Sentences for a log that say what was done. Empty if the
        checkpoint was not changed.

    Raises:
        CheckpointError: See :func:`find_backbone`.
    """
    saved = loaded_names(checkpoint)
    own, vit = model.state_dict(), getattr(model, 'backbone', None)
    parts = {name.partition('.')[0] for name in own.keys() & saved}
    # timm's files may also share a `head`, but have no `backbone`.
    is_ours = 'backbone' in parts and len(parts) > 1
    if TEACHER_CLS not in saved and (
        not isinstance(vit, VisionTransformer)
        or is_ours
        or all(n in saved and saved[n].shape == own[n].shape for n in own)
    ):
        return []
    backbone = find_backbone(checkpoint, source=source)
    role = 'encoder' if backbone.which == 'only' else backbone.which
    done = f"the backbone is the file's {role}, of layout {backbone.layout}"
    changes = [done, *backbone.changes]
    if isinstance(vit, VisionTransformer):
        backbone, fitted = fit(backbone, vit)
        changes += fitted
    loaded = backbone_checkpoint(backbone, 'load_from')
    checkpoint.clear()
    checkpoint.update(without_final_norm(loaded, vit, 'backbone.'))
    return changes


def _part(name: str) -> str:
    """Return the part of the model, or of its head, that contains a tensor."""
    depth = 2 if name.startswith('head.') else 1
    return '.'.join(name.split('.')[:depth])
