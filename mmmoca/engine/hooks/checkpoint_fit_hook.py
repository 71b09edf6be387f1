# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Iterator, Mapping

from mmengine.hooks import Hook
from mmengine.optim import BaseOptimWrapper, OptimWrapper
from mmengine.runner import BaseLoop, Runner
from torch import Tensor, nn

from mmmoca.checkpoints import (
    CheckpointError,
    check_encoders,
    check_grids,
    check_pretrained_inits,
    check_shapes,
    compare_states,
    fit_start,
    guarded,
    is_start,
    listed,
)
from mmmoca.engine.steps import unwrap_model
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
    - a file that is resumed and does not match wholly, the moments of its
      optimiser included.

    A run that is resumed keeps learning rate and weight decay of the file:
    where the config says others, a warning has both, and another one says
    what the file lacks of its optimiser and schedules. A partial match is
    logged with its count. What pretraining starts from (``mmmoca-start://``)
    is fitted to the model, and what is done to it logged.

    Raises:
        CheckpointError: Names examples of what does not fit.
    """

    def __init__(self) -> None:
        self._training = True

    def before_run(self, runner: Runner) -> None:
        """Have our reader read all files; check what inits will load."""
        if runner._load_from is not None:
            # MMEngine's own reader would run code that the file holds.
            runner._load_from = guarded(runner._load_from)
        # A test or validation alone initialises nothing.
        self._training = isinstance(runner._train_loop, BaseLoop)
        if self._training:
            for line in check_pretrained_inits(unwrap_model(runner.model)):
                runner.logger.info(line)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Compare the checkpoint's parameters with the model's."""
        model = unwrap_model(runner.model)
        own = model.state_dict()
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
        check_shapes(saved, own, misshapen, 'the checkpoint')
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
            _check_resumable(runner, checkpoint)
        _check_teacher(saved, own)
        meta = checkpoint.get('meta')
        check_grids(model, saved, meta)
        check_encoders(model, saved, meta, self._training)
        if not self._training:
            _check_all_parts(model, saved)
        if (missing or unexpected) and not start:
            runner.logger.warning(report)


def _check_resumable(runner: Runner, checkpoint: dict) -> None:
    if 'iter' not in checkpoint.get('meta', {}):
        raise CheckpointError(
            'the checkpoint holds weights only, no state of a run to resume: '
            'start from it by load_from=FILE with resume=False'
        )
    for warning in _compare_optimizers(runner.optim_wrapper, checkpoint):
        runner.logger.warning(warning)


def _compare_optimizers(
    wrapper: BaseOptimWrapper, checkpoint: dict
) -> Iterator[str]:
    """What is not resumed, or not as the config says."""
    for key, what in (
        ('optimizer', "optimiser's moments"),
        ('param_schedulers', 'schedules'),
    ):
        if not checkpoint.get(key):
            yield f'the checkpoint has no {what}: they start anew'
    saved = checkpoint.get('optimizer') or {}
    if not isinstance(wrapper, OptimWrapper) or 'param_groups' not in saved:
        return  # of several optimisers
    pairs = list(zip(saved['param_groups'], wrapper.param_groups))
    for group, own in pairs:
        for index, parameter in zip(group['params'], own['params']):
            for name in ('exp_avg', 'exp_avg_sq', 'momentum_buffer'):
                moment = saved['state'].get(index, {}).get(name)
                # PyTorch's fused kernels do not look at shapes.
                if moment is not None and moment.shape != parameter.shape:
                    raise CheckpointError(
                        f'{name} of the optimiser is {tuple(moment.shape)} '
                        'in the checkpoint and '
                        f'{tuple(parameter.shape)} in this run: start from '
                        'its weights by load_from=FILE with resume=False'
                    )
    for key in ('lr', 'weight_decay'):
        before, now = (
            [group.get(f'initial_{key}', group.get(key)) for group in groups]
            for groups in zip(*pairs)
        )
        changed = [(b, n) for b, n in zip(before, now) if b != n]
        if changed:
            yield (
                f'{key} goes on from {changed[0][0]:g} of the checkpoint, not '
                f'from {changed[0][1]:g} of the config: to train with the '
                "config's, start a new run by load_from=FILE with resume=False"
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
