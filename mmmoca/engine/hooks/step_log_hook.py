# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from mmengine.hooks import Hook, LoggerHook
from mmengine.runner import Runner
from torch import Tensor

from mmmoca.engine.steps import check_hooks, skipped, stepped
from mmmoca.registry import HOOKS

from .checkpoint_hook import AtomicCheckpointHook

__all__ = ['NonFiniteLossError', 'StepLogHook']


class NonFiniteLossError(RuntimeError):
    """The loss or the gradients of a step were not finite."""


class _Step(NamedTuple):
    """A step whose scalars are still on the device."""

    iteration: int
    names: Sequence[str]
    values: Tensor
    images: Sequence[str]


@HOOKS.register_module()
class StepLogHook(Hook):
    """Keeps a step's scalars on the device until they are logged.

    MMEngine reads every logged scalar after every step, which makes the host
    wait for the device each time. This hook reads those of all steps since
    the last log line at once, before the next line, an epoch's end or a
    checkpoint. It logs the same numbers.

    It is also the guard against non-finite numbers: a step whose loss is not
    finite stops the run when its scalars are read, before any checkpoint is
    written, and so does a step with non-finite gradients unless a loss
    scaler deals with them. A scaler that skips 32 steps in a row has
    nothing left to scale: that stops the run, too. ``skipped`` is logged
    where the loss is scaled, 1 for a skipped step.

    And it gives the alarm, a warning in the log, when ``msd`` falls below
    0.1: where all tokens become one, so do the words, and no token is nearer
    to one of them than to the others. Healthy runs of the quick start stay
    above 0.25; images without content and a learning rate of 1 end below.
    A second one goes out when ``image_information`` falls below a third of its
    highest: tokens may differ, but no longer between images. The quick start
    keeps more than half; on digits, which its recipe does not suit, a sixth.

    Raises:
        NonFiniteLossError: Names the step, the images of this process's
            batch and the last checkpoint.
    """

    # After the CodebookHook (HIGHEST, 0), which takes what is no scalar, and
    # before the RuntimeInfoHook (VERY_HIGH, 10), which would read them all.
    priority = 5
    max_skipped_steps = 32
    collapsed_msd = 0.1
    kept_information = 1 / 3

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._skipped_in_a_row = 0
        self._healthy = False
        self._highest_information = 0.0
        self._targets_alike = False

    def before_train(self, runner: Runner) -> None:
        """Find out how often the run logs."""
        check_hooks(runner)
        self._interval = min(
            (h.interval for h in runner.hooks if isinstance(h, LoggerHook)),
            default=100,
        )

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Take the step's scalars; read them if they are due."""
        norm = getattr(runner.optim_wrapper, 'grad_norm', None)
        if norm is not None:
            outputs['grad_norm'] = norm
        skip = skipped(runner)
        if skip is not None and stepped(runner):
            outputs['skipped'] = skip
        samples = (data_batch or {}).get('data_samples') or ()
        self._steps.append(
            _Step(
                runner.iter,
                tuple(outputs),
                torch.stack([v.detach().float() for v in outputs.values()]),
                [str(s.metainfo.get('img_path', '?')) for s in samples],
            )
        )
        outputs.clear()
        last = self.is_last_train_iter(runner) or self.end_of_epoch(
            runner.train_dataloader, batch_idx
        )
        if last or self.every_n_inner_iters(batch_idx, self._interval):
            self._read(runner)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Let no checkpoint be written after a non-finite step."""
        self._read(runner)

    def _read(self, runner: Runner) -> None:
        steps, self._steps = self._steps, []
        if not steps:
            return
        # One transfer for all of them.
        values = torch.cat([step.values for step in steps]).tolist()
        for step in steps:
            scalars = dict(zip(step.names, values))
            values = values[len(step.names) :]
            finite = math.isfinite(scalars['loss'])
            if 'skipped' in scalars:
                streak = (self._skipped_in_a_row + 1) * int(scalars['skipped'])
                self._skipped_in_a_row = streak
                finite &= streak < self.max_skipped_steps
            elif skipped(runner) is None:
                finite &= math.isfinite(scalars.get('grad_norm', 0.0))
            if not finite:
                raise NonFiniteLossError(_message(runner, step, scalars))
            if 'msd' in scalars:
                self._watch(runner, step.iteration + 1, scalars['msd'])
            if 'image_information' in scalars:
                self._watch_targets(
                    runner, step.iteration + 1, scalars['image_information']
                )
            for name, value in scalars.items():
                runner.message_hub.update_scalar(f'train/{name}', value)

    def _watch(self, runner: Runner, iteration: int, msd: float) -> None:
        """Warn once each time that a run collapses, not where it starts."""
        healthy = msd >= self.collapsed_msd
        if self._healthy and not healthy:
            runner.logger.warning(
                f'iteration {iteration}: the features seem to collapse, msd '
                f'has fallen to {msd:.2g}. Look at msd, codebook_perplexity '
                '(near num_words here: every word fits every token) and '
                'k-NN; at the images, and mean and std of the '
                'data_preprocessor; then try a lower learning rate, '
                'clip_grad, or a teacher_ema.momentum nearer to 1. See "Is '
                'my run healthy?" in docs/method.md'
            )
        self._healthy = healthy

    def _watch_targets(
        self, runner: Runner, iteration: int, information: float
    ) -> None:
        """Warn once in a run if its targets no longer tell images apart."""
        self._highest_information = max(self._highest_information, information)
        least = self.kept_information * self._highest_information
        if self._targets_alike or information >= least:
            return
        self._targets_alike = True
        runner.logger.warning(
            f'iteration {iteration}: the targets of all images become the '
            'same, image_information has fallen from '
            f'{self._highest_information:.2g} to {information:.2g}. Look at '
            'k-NN; then try model.image_embedding=cls, an eighth of the '
            'learning rate, or a larger model.codebook.inv_delta. See "Is my '
            'run healthy?" in docs/method.md'
        )


def _message(runner: Runner, step: _Step, scalars: dict) -> str:
    good = 'unknown'
    for hook in runner.hooks:
        if isinstance(hook, AtomicCheckpointHook):
            good = hook.last_good(runner)
    return (
        f'the step of iteration {step.iteration + 1} is not finite '
        f'({", ".join(f"{k}={v:.4g}" for k, v in scalars.items())}). '
        f'The last good checkpoint is {good}. Resume from it '
        'with bfloat16 or a lower learning rate, or look at the images of '
        f'the step: {", ".join(step.images)}'
    )
