# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Mapping

from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, Runner
from torch import Tensor, nn

from mmmoca.checkpoints import (
    CheckpointError,
    advise_on_channels,
    check_encoders,
    check_grids,
    check_pretrained_inits,
    compare_states,
    fit_start,
    is_start,
    listed,
)
from mmmoca.engine.wrapped_models import (
    unwrap_model,
    whole_parameters,
    whole_state_dict,
)
from mmmoca.registry import HOOKS

__all__ = ['CheckpointFitHook']


@HOOKS.register_module()
class CheckpointFitHook(Hook):
    """Refuses a checkpoint that does not fit the config's model.

    MMEngine loads whatever matches and only logs the rest, so that a foreign
    checkpoint leaves the model untrained without a word. For every model of
    mmpretrain, mmseg or mmdet these are errors here:

    - ``load_from`` or a ``Pretrained`` init of a module that matches no name,
      or names of other shapes (position embeddings are resized);
    - a pretraining run whose student would pass for the teacher;
    - a test of a part that nothing was loaded into, such as a head;
    - a frozen or tested ViT that lacks a part of its weights, such as the
      final norm, and one without the LayerScale of the file;
    - a file that is resumed and does not match wholly.

    A partial match is logged with its count. What pretraining starts from
    (``mmmoca-start://``) is fitted to the model, and what is done to it
    logged.

    Raises:
        CheckpointError: Names examples of what does not fit.
    """

    def __init__(self) -> None:
        self._training = True

    def before_run(self, runner: Runner) -> None:
        """Check what the ``Pretrained`` inits will load, before they do."""
        # A test or validation alone initialises nothing.
        self._training = isinstance(runner._train_loop, BaseLoop)
        if self._training:
            for line in check_pretrained_inits(unwrap_model(runner.model)):
                runner.logger.info(line)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Compare the checkpoint's parameters with the model's."""
        model = unwrap_model(runner.model)
        own = whole_state_dict(runner.model)
        start = is_start(checkpoint)
        if start:
            matched, changes = fit_start(checkpoint, model, own)
            runner.logger.info(matched)
            for change in changes:
                runner.logger.warning(change)
        saved = {
            name.removeprefix('module.'): value
            for name, value in checkpoint.get('state_dict', checkpoint).items()
        }
        shared, misshapen = compare_states(saved, own)
        missing, unexpected = own.keys() - shared, saved.keys() - shared
        report = (
            f'{len(shared) - len(misshapen)} of the {len(own)} parameters '
            'and buffers of the model are in the checkpoint'
        )
        for title, names in (
            ('of another shape', misshapen),
            ('missing', missing),
            ('unexpected', unexpected),
        ):
            if names:
                examples = listed(sorted(names), 3)
                report += f'; {len(names)} {title} ({examples})'
        if advice := advise_on_channels(saved, own, misshapen):
            raise CheckpointError(advice)
        if (
            misshapen
            or not shared
            or (runner._resume and (missing or unexpected))
        ):
            raise CheckpointError(
                f'{report}. Use the config that the checkpoint was trained '
                'with, or the checkpoint of this config'
            )
        if runner._resume:
            _check_resumable(checkpoint)
        _check_teacher(saved, own)
        with whole_parameters(runner.model):
            meta = checkpoint.get('meta')
            check_grids(model, saved, meta)
            check_encoders(model, saved, meta, self._training)
        if not self._training:
            _check_all_parts(model, saved)
        if (missing or unexpected) and not start:
            runner.logger.warning(report)


def _check_resumable(checkpoint: dict) -> None:
    if 'iter' not in checkpoint.get('meta', {}):
        raise CheckpointError(
            'the checkpoint holds weights only, no state of a run to resume: '
            'start from it by load_from=FILE with resume=False'
        )


def _check_teacher(
    saved: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> None:
    if 'teacher.cls_token' in saved.keys() - own.keys():
        raise CheckpointError(
            "the checkpoint is a pretraining run: its 'backbone.' is the "
            'student, while the paper evaluates the teacher. Load '
            "'mmmoca-teacher://FILE' or 'mmmoca-student://FILE', or add "
            "dict(type='mmmoca.BackboneCheckpointHook') to custom_hooks"
        )


def _check_all_parts(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    for part, module in model.named_children():
        names = [f'{part}.{name}' for name, _ in module.named_parameters()]
        if names and not saved.keys() & set(names):
            raise CheckpointError(
                f'nothing of {part} is in the checkpoint, so that it would be '
                'tested untrained: give a checkpoint of the whole model'
            )
