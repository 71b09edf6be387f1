# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmpretrain.models.backbones import VisionTransformer
from torch import nn

from mmmoca.checkpoints import (
    find_backbone,
    position_grid,
    read_checkpoint,
    resize_positions,
)
from mmmoca.checkpoints.scheme import SCHEME
from mmmoca.engine.steps import unwrap_model
from mmmoca.registry import HOOKS

__all__ = ['BackboneCheckpointHook']


@HOOKS.register_module()
class BackboneCheckpointHook(Hook):
    """Lets an evaluation start from a checkpoint of any layout known.

    ``load_from`` of the config (``tools/test.py CONFIG ANY.pth``) may be a
    pretraining run of this package, the authors' file, or one of DINO, iBOT,
    MAE, MSN, MoCo-v3, DeiT or timm: its ViT becomes the ``backbone`` of the
    config's model. A checkpoint of that very model, as of a fine-tuned
    classifier, is loaded as it is. So is a run that is resumed.

    Args:
        which (str): 'teacher' (default, as all of the paper's evaluations)
            or 'student'. Files with one encoder have no student.

    Raises:
        ValueError: If ``which`` is neither.
        CheckpointError: Before the run, if the file cannot be read, has no
            such encoder, or the config's backbone is no ViT.
    """

    # It fits the position embedding before CheckpointFitHook looks at it.
    priority = 'HIGH'

    def __init__(self, which: str = 'teacher') -> None:
        if which not in ('teacher', 'student'):
            raise ValueError(
                f"which must be 'teacher' or 'student', but got {which!r}"
            )
        self.which = which

    def before_run(self, runner: Runner) -> None:
        """Have the runner read the file's ViT, unless it is the model's."""
        path = runner._load_from
        schemes = tuple(SCHEME.format(which=w) for w in ('teacher', 'student'))
        if path is None or runner._resume or path.startswith(schemes):
            return
        model = unwrap_model(runner.model)
        if not isinstance(getattr(model, 'backbone', None), VisionTransformer):
            raise TypeError(
                'BackboneCheckpointHook fills a mmpretrain.VisionTransformer '
                f'called backbone, which {type(model).__name__} has not: '
                'change the backbone, or leave the hook out'
            )
        checkpoint = read_checkpoint(path, lazy=True)
        if _is_of(model, checkpoint):
            runner.logger.info(f'{path} is a checkpoint of this very model')
            return
        backbone = find_backbone(checkpoint, self.which, path)
        left_out = f'; {len(backbone.ignored)} names beside it are left out'
        runner.logger.info(
            f'{path} has the layout {backbone.layout}: its '
            f'{backbone.which} encoder becomes the backbone'
            + (left_out if backbone.ignored else '')
        )
        if backbone.feature is not None:
            runner.logger.info(
                f'{path} is judged by [{backbone.feature.upper()}]'
            )
        for change in backbone.changes:
            runner.logger.info(f'{path}: {change}')
        # MMEngine would unpickle whatever the file holds.
        runner._load_from = SCHEME.format(which=self.which) + path

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Resize positions by the grid on record, which may not be square."""
        model = unwrap_model(runner.model)
        state_dict = checkpoint.get('state_dict', {})
        positions = state_dict.get('backbone.pos_embed')
        projection = state_dict.get('backbone.patch_embed.projection.weight')
        if runner._resume or positions is None or projection is None:
            return
        source = position_grid(checkpoint.get('meta'), positions, projection)
        target = tuple(model.backbone.patch_resolution)
        if source is not None and source != target:
            state_dict['backbone.pos_embed'] = resize_positions(
                positions, source, target, model.backbone.interpolate_mode
            )
            meta = checkpoint.setdefault('meta', {})
            meta['mmmoca'] = meta.get('mmmoca', {}) | dict(grid=target)


def _is_of(model: nn.Module, checkpoint: dict) -> bool:
    """Whether all of the model, and no teacher beside it, is in the file."""
    saved = {
        name.removeprefix('module.')
        for name in checkpoint.get('state_dict', checkpoint)
    }
    names = model.state_dict().keys()
    beside = saved - names
    return names <= saved and not any(n.startswith('teacher.') for n in beside)
