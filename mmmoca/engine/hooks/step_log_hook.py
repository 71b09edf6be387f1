# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import math

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.mmengine import is_training
from mmmoca.engine.steps import (
    DivergedError,
    advice_to_go_on,
    log_is_due,
    skipped,
    stepped,
    unwrap_model,
)
from mmmoca.messages import listed
from mmmoca.registry import HOOKS

from .codebook_hook import CodebookHook
from .teacher_ema_hook import TeacherEMAHook


class _OutputsHook(Hook):
    """Restores outputs after RuntimeInfoHook, which must not read them."""

    # After RuntimeInfoHook (VERY_HIGH, 10).
    priority = 11

    def __init__(self) -> None:
        self.kept: dict = {}

    def after_train_iter(self, *_, outputs: dict, **__) -> None:
        """Put the scalars back into the outputs."""
        outputs |= self.kept


class NonFiniteLossError(DivergedError):
    """The loss or the gradients of a step were not finite."""


@HOOKS.register_module()
class StepLogHook(Hook):
    """Logs a step's scalars without making the host wait for the device.

    MMEngine reads every logged scalar after every step, which makes the host
    wait for the device each time. This hook keeps the scalars on the device.
    Before a log line, at the end of an epoch and before a checkpoint, it reads
    all new scalars in one transfer. The logged numbers are the same, and other
    hooks find the scalars in ``outputs`` as usual.

    The hook stops the run, before a checkpoint is written, if

    - the loss of a step is not finite;
    - the norm of the gradients is not finite, in a run that clips gradients
      and does not scale the loss;
    - the loss scaler skips 32 steps in a row. With a scaler, the log shows
      ``skipped``, 1 for a skipped step.

    It warns once if the codebook is not updated because new words or tokens
    are not finite, and once for each of two kinds of collapse:

    - ``msd`` (a token's similarity to its most similar word, minus its mean
      similarity to all words) falls below 0.1: all tokens become equal.
      Healthy runs of the demo stay above 0.25. Runs on images without
      content, or with a learning rate of 1, end below 0.1.
    - ``image_information`` (the mutual information of images and words) falls
      below a third of its highest value in the run: tokens of an image still
      differ, but all images become alike. The demo keeps more than half of
      the highest value. A run on images of digits, which the demo's recipe
      does not suit, keeps a sixth.

    Raises:
        NonFiniteLossError: If the hook stops the run. The message names the
            step, the images in this process's batch and the last checkpoint.
        ValueError: Before training a model with a codebook, if there is not
            exactly one :class:`CodebookHook` and one :class:`TeacherEMAHook`.
    """

    # After CodebookHook (HIGHEST, 0), which removes outputs that are not
    # scalars, and before RuntimeInfoHook (VERY_HIGH, 10), which would read all
    # scalars.
    priority = 5
    max_skipped_steps = 32

    def __init__(self) -> None:
        # For each iteration: its number, the names of the scalars, their
        # values on the device, and the paths of the images.
        self._steps = []
        self._skipped_in_a_row = 0
        self._highest_information = 0.0
        self._warned = set()
        self._outputs = _OutputsHook()

    def before_run(self, runner: Runner) -> None:
        """Check the hooks that update the codebook and the teacher."""
        if self._outputs not in runner.hooks:
            runner.register_hook(self._outputs)
        model = unwrap_model(runner.model)
        if is_training(runner) and hasattr(model, 'codebook'):
            for kind in (CodebookHook, TeacherEMAHook):
                count = sum(isinstance(hook, kind) for hook in runner.hooks)
                if count != 1:
                    raise ValueError(
                        f'{type(model).__name__} needs one {kind.__name__} or '
                        'a subclass of it in default_hooks or custom_hooks, '
                        f'but has {count}'
                    )

    def before_train(self, runner: Runner) -> None:
        """Take over the highest ``image_information`` of a resumed run."""
        logged = runner.message_hub.log_scalars.get('train/image_information')
        if logged is not None:
            self._highest_information = float(logged.max())

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict, outputs: dict
    ) -> None:
        """Keep the step's scalars; read them if a log line is due."""
        # Until the last micro-batch of a step, `grad_norm` and `skipped` are
        # those of the previous step.
        if stepped(runner):
            norm = getattr(runner.optim_wrapper, 'grad_norm', None)
            step = dict(grad_norm=norm, skipped=skipped(runner))
            outputs |= {k: v for k, v in step.items() if v is not None}
        values = torch.stack([v.detach().float() for v in outputs.values()])
        samples = data_batch.get('data_samples') or ()
        images = [str(s.metainfo.get('img_path', '?')) for s in samples]
        self._steps.append((runner.iter + 1, [*outputs], values, images))
        self._outputs.kept = dict(outputs)
        outputs.clear()
        if log_is_due(self, runner, batch_idx):
            self._read(runner)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Stop before a checkpoint of a non-finite step is written.

        The scalars since the last log line are added to the checkpoint.
        """
        self._read(runner)
        scalars = runner.message_hub.state_dict()['log_scalars']
        checkpoint['message_hub']['log_scalars'] = scalars

    def _read(self, runner: Runner) -> None:
        steps, self._steps = self._steps, []
        if not steps:
            return
        # One transfer from the device for all steps.
        values = iter(torch.cat([values for *_, values, _ in steps]).tolist())
        for iteration, names, _, images in steps:
            scalars = dict(zip(names, values))
            finite = math.isfinite(scalars['loss'])
            if 'skipped' in scalars:
                streak = (self._skipped_in_a_row + 1) * int(scalars['skipped'])
                self._skipped_in_a_row = streak
                finite &= streak < self.max_skipped_steps
            elif skipped(runner) is None:
                finite &= math.isfinite(scalars.get('grad_norm', 0.0))
            if not finite:
                numbers = ', '.join(f'{k}={v:.4g}' for k, v in scalars.items())
                skips = math.isfinite(scalars['loss']) and 'skipped' in scalars
                raise NonFiniteLossError(
                    f'iteration {iteration}: '
                    + (
                        'the loss scaler skips all steps'
                        if skips
                        else 'the loss or a gradient is not finite'
                    )
                    + f' ({numbers}). '
                    f'{advice_to_go_on(runner)} with a lower learning rate, '
                    'or with bfloat16 instead of float16, or check your own '
                    'masks and losses, and the images of the step: '
                    f'{listed(images, 8)}'
                )
            self._watch(runner, iteration, scalars)
            for name, value in scalars.items():
                runner.message_hub.update_scalar(f'train/{name}', value)

    def _watch(self, runner: Runner, iteration: int, scalars: dict) -> None:
        """Warn once of each kind of collapse, and of an unchanged codebook."""
        if scalars.pop('codebook_kept', 0) and 'codebook' not in self._warned:
            self._warned.add('codebook')
            runner.logger.warning(
                f'iteration {iteration}: the codebook is not updated, because '
                'new words or tokens are not finite'
            )
        self._highest_information = max(
            self._highest_information, scalars.get('image_information', 0.0)
        )
        alarms = dict(msd=0.1, image_information=self._highest_information / 3)
        for name in alarms.keys() & scalars.keys() - self._warned:
            if scalars[name] < alarms[name]:
                self._warned.add(name)
                of = '' if name == 'msd' else ', a third of its highest value'
                runner.logger.warning(
                    f'iteration {iteration}: {name} has fallen to '
                    f'{scalars[name]:.2g}, below {alarms[name]:.2g}{of}. If '
                    'it does not rise again, the run collapses: see "Is my '
                    'run healthy?" in docs/method/health.md'
                )
