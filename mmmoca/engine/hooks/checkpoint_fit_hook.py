# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Iterator

from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import BaseLoop, Runner
from mmpretrain.models.backbones import VisionTransformer
from torch import nn
from torch.utils.data import DataLoader

from mmmoca.checkpoints import (
    CheckpointError,
    backbone_checkpoint,
    check_fit,
    check_pretrained_inits,
    find_backbone,
    fit_start,
    guarded,
    is_start,
    resize_positions,
)
from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.loaders import check_same_classes, class_names
from mmmoca.registry import HOOKS

__all__ = ['CheckpointFitHook']

TEACHER = 'teacher.cls_token'


@HOOKS.register_module()
class CheckpointFitHook(Hook):
    """Takes a ViT from a checkpoint of any layout; refuses what does not fit.

    ``load_from`` (``tools/test.py CONFIG ANY.pth``) may be a pretraining run
    of this package, the authors' file, or one of DINO, iBOT, MAE, MSN,
    MoCo-v3, DeiT or timm: its encoder, the teacher if there are two, becomes
    the ``backbone`` of a model whose backbone is mmpretrain's ViT.
    ``mmmoca-student://FILE`` takes the student. A checkpoint of that very
    model, or one that shares a neck or a head with it, is loaded as it is,
    and so is a run that is resumed. What pretraining starts from
    (``mmmoca-start://``) is fitted to the model.

    MMEngine loads whatever matches and only logs the rest, so that a foreign
    checkpoint leaves the model untrained without a word. For every model of
    mmpretrain, mmseg or mmdet these are errors here:

    - ``load_from`` or a ``Pretrained`` init of a module that matches no name,
      or names of other shapes (position embeddings are resized);
    - a pretraining run whose student would pass for the teacher;
    - a test of a part that nothing was loaded into, such as a head;
    - a frozen or tested ViT that lacks a part of its weights, such as the
      final norm, and one without the LayerScale of the file;
    - a file that is resumed and does not match wholly, the moments of its
      optimiser included. (The run keeps learning rate and weight decay of
      the file, and a warning says so where the config has others.)

    Before that, the classes of the data sets are compared with each other
    and with the head of a classifier.

    Args:
        needs_checkpoint (bool): Whether to refuse a training that starts
            from random weights. Defaults to False.

    Raises:
        CheckpointError: Names examples of what does not fit.
        ValueError: If classes differ, or there is no checkpoint.
    """

    # Its errors come before those of other hooks that look at the data, and
    # what it makes of a checkpoint before others read it.
    priority = 'HIGH'

    def __init__(self, needs_checkpoint: bool = False) -> None:
        self.needs_checkpoint = needs_checkpoint
        self._training = True
        self._initialized = False

    def before_run(self, runner: Runner) -> None:
        """Check classes, and what the ``Pretrained`` inits will load."""
        model = unwrap_model(runner.model)
        loops = runner._train_loop, runner._val_loop, runner._test_loop
        # The others are configs still, not of this run.
        _check_classes(
            model, [x.dataloader for x in loops if isinstance(x, BaseLoop)]
        )
        if runner._load_from is not None:
            # MMEngine's own reader would run code that the file holds.
            runner._load_from = guarded(runner._load_from)
        # A test or validation alone initialises nothing.
        self._training = isinstance(runner._train_loop, BaseLoop)
        if self._training:
            reports = check_pretrained_inits(model)
            self._initialized = bool(reports)
            for report in reports:
                runner.logger.info(report)

    def before_train(self, runner: Runner) -> None:
        """Check that there were weights to start or to go on from."""
        loaded = runner._has_loaded or self._initialized
        if self.needs_checkpoint and not loaded:
            raise ValueError(
                'there is no checkpoint to start from: add --cfg-options '
                'load_from=CHECKPOINT, or, to train from scratch, '
                'default_hooks.checkpoint_fit.needs_checkpoint=False'
            )

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Fit the checkpoint to the model, then compare their parameters."""
        model = unwrap_model(runner.model)
        own = model.state_dict()
        if start := is_start(checkpoint):
            matched, changes = fit_start(checkpoint, model, own)
            runner.logger.info(matched)
            for change in changes:
                runner.logger.warning(change)
        elif not runner._resume and TEACHER not in own:
            for line in _take_backbone(checkpoint, model):
                runner.logger.info(line)
        saved = {
            name.removeprefix('module.'): value
            for name, value in checkpoint.get('state_dict', checkpoint).items()
        }
        report = check_fit(
            *(model, saved, checkpoint.get('meta')),
            'the checkpoint',
            self._training,
        )
        partial = saved.keys() != own.keys()
        if runner._resume:
            if partial:
                raise CheckpointError(f'{report}: resume by its own config')
            for warning in _compare_optimizers(runner, checkpoint):
                runner.logger.warning(warning)
        missing = dict(model.named_parameters()).keys() - saved.keys()
        if missing and not self._training:
            raise CheckpointError(
                f'{report}: what is missing would be tested untrained'
            )
        if partial and not start:
            runner.logger.warning(report)


def _check_classes(model: nn.Module, loaders: list[DataLoader]) -> None:
    """Compare the classes of a run's data with a classifier's, if it is one.

    Mixup and CutMix have the number once more, in ``data_preprocessor``.
    """
    if not hasattr(getattr(model, 'head', None), 'num_classes'):
        return
    for loader in loaders:
        check_same_classes(loaders[0], loader, ('train', 'val'))
        found = len(class_names(loader))
        for part in ('head', 'data_preprocessor'):
            number = getattr(getattr(model, part), 'num_classes', None)
            if found and number not in (None, found):
                raise ValueError(
                    f'the images have {found} classes, but model.{part} has '
                    f'{number}: write model.{part}.num_classes={found}'
                )


def _take_backbone(checkpoint: dict, model: nn.Module) -> Iterator[str]:
    """Make ``backbone.*`` of a ViT of any layout, in place.

    Yields what is done, in words for a log.
    """
    state = checkpoint.get('state_dict', checkpoint)
    saved = {name.removeprefix('module.'): v for name, v in state.items()}
    own, vit = model.state_dict(), getattr(model, 'backbone', None)
    shared = own.keys() & saved
    if TEACHER not in saved and (
        not isinstance(vit, VisionTransformer)
        or any(not name.startswith('backbone.') for name in shared)
        or all(n in saved and saved[n].shape == own[n].shape for n in own)
    ):
        return
    backbone = find_backbone(checkpoint)
    yield (
        f'the {backbone.which} encoder of layout {backbone.layout} becomes '
        'the backbone'
    )
    yield from backbone.changes
    # mmpretrain takes every grid for a square one.
    grid = getattr(vit, 'patch_resolution', None)
    if None not in (grid, backbone.grid):
        state, target = backbone.state_dict, tuple(grid)
        state['pos_embed'] = resize_positions(
            state['pos_embed'], backbone.grid, target, vit.interpolate_mode
        )
        backbone = backbone._replace(grid=target)
    checkpoint.clear()
    checkpoint.update(backbone_checkpoint(backbone, 'load_from'))


def _compare_optimizers(runner: Runner, checkpoint: dict) -> Iterator[str]:
    """What the optimiser does not take from the config, in words for a log.

    Raises CheckpointError if there is no state of a run, or one of others.
    """
    advice = 'start from its weights by load_from=FILE with resume=False'
    saved = checkpoint.get('optimizer')
    if 'iter' not in checkpoint.get('meta', {}) or not saved:
        raise CheckpointError(f'there is no run in the checkpoint: {advice}')
    wrapper = runner.optim_wrapper
    if not isinstance(wrapper, OptimWrapper):
        return  # of several optimisers, or no training
    pairs = list(zip(saved['param_groups'], wrapper.param_groups))
    for group, own in pairs:
        for index, parameter in zip(group['params'], own['params']):
            for name in ('exp_avg', 'exp_avg_sq', 'momentum_buffer'):
                moment = saved['state'].get(index, {}).get(name)
                # PyTorch's fused kernels do not look at shapes.
                if moment is not None and moment.shape != parameter.shape:
                    raise CheckpointError(
                        f'{name} of the optimiser has another shape than its '
                        f'parameter: {advice}'
                    )
    for key in ('lr', 'weight_decay'):
        before, now = (
            [group.get(f'initial_{key}', group.get(key)) for group in groups]
            for groups in zip(*pairs)
        )
        if before != now:
            yield (
                f'{key} goes on from {max(before):g} of the checkpoint, not '
                f'from {max(now):g} of the config: for that, {advice}'
            )
