# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compares the encoder of a run with the one that it started from."""

from typing import NamedTuple

from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, EpochBasedTrainLoop, Runner

from mmmoca.checkpoints.pretrained_init import starts_pretrained
from mmmoca.engine.mmengine import has_loaded, resumes
from mmmoca.engine.resume_check import validation_digest
from mmmoca.evaluation.features import raw_pixels

# Key in the message hub. It must not begin with a mode, such as 'val', or
# MMEngine would log it.
_DIGEST = 'measured_by'
_NAMES = 'start', 'untrained', 'raw_pixels'


class Judgement(NamedTuple):
    """A metric that shows what a run has gained.

    Attributes:
        metric (str): Its name.
        baseline (str): Template for the names of its baselines, such as
            'knn/{}_k20', which ``format`` fills with 'start', 'untrained' or
            'raw_pixels'.
        title (str): Its name in the log.
        margin (float, optional): The smallest difference from the start that
            counts as a gain or a loss. Defaults to None: the log shows only
            the difference.
    """

    metric: str
    baseline: str
    title: str
    margin: float | None = None


class BaselinesHook(Hook):
    """Measures what a run starts from, and logs what it has gained.

    The hook also measures raw pixels. A resumed run takes these numbers from
    the message hub in its checkpoint. If settings of the validation have
    changed, such as the views, the old numbers cannot be compared with new
    ones. The run then measures the encoder that it resumes from, and chooses
    its best checkpoint only among later ones.

    Args:
        loop (BaseLoop): The validation loop, a :class:`FeatureLoop`.

    Attributes:
        gains (list[str]): The lines about gains that the log shows at the end.
    """

    def __init__(self, loop: BaseLoop) -> None:
        self.loop = loop
        self.last: dict[str, float] = {}
        self.gains: list[str] = []

    def before_train(self, runner: Runner) -> None:
        """Measure the baselines, unless they are known or not needed."""
        # `runner.iter > 0` would miss a run that was stopped before its first
        # step.
        goes_on = resumes(runner) and has_loaded(runner)
        loop = runner.train_loop
        by_epoch = isinstance(loop, EpochBasedTrainLoop)
        end = loop.max_epochs if by_epoch else loop.max_iters
        if loop.val_begin > end:
            return
        hub, digest = runner.message_hub, validation_digest(runner)
        known = hub.runtime_info.get(_DIGEST)  # None from older versions
        hub.update_info(_DIGEST, digest)
        if goes_on and known in (None, digest):
            return
        if goes_on:
            self._forget(runner)
        loads = runner.cfg.get('load_from') or starts_pretrained(runner.model)
        start = 'start' if goes_on or loads else 'untrained'
        for name, encode in ((start, None), ('raw_pixels', raw_pixels)):
            metrics = self.loop.measure(encode=encode)
            for judgement in self.loop.judgements:
                if (value := metrics.get(judgement.metric)) is None:
                    continue
                # The prefix val/ lets the log lines of validations show the
                # baseline, too.
                key = judgement.baseline.format(name)
                runner.message_hub.update_scalar(f'val/{key}', value)
                runner.visualizer.add_scalars({key: value}, step=0)
                runner.logger.info(f'before training, {key}: {value:.2f}')

    def _forget(self, runner: Runner) -> None:
        """Forget what was measured with other settings of the validation."""
        runner.logger.warning(
            'the settings or the images of the validation have changed since '
            'the run was saved, so its numbers cannot be compared with '
            'earlier ones. The run is compared with the encoder that it '
            'resumes from, and the best checkpoint is chosen among later '
            'ones. Earlier best_* files are kept'
        )
        hub = runner.message_hub
        for key in [*hub.runtime_info]:
            if key.startswith('best_'):
                hub.runtime_info.pop(key)
        for key in [*hub.log_scalars]:
            mode, _, short = key.rpartition('/')
            if mode.startswith('val') and short.startswith(_NAMES):
                hub.log_scalars.pop(key)

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Keep the last metrics. A run that resumes at its end has none."""
        self.last = metrics or {}

    def after_train(self, runner: Runner) -> None:
        """Compare the last metrics with the baselines."""
        logs = runner.message_hub.log_scalars
        for judgement in self.loop.judgements:
            found = {
                name: logs[key].current()
                for name in _NAMES
                if (key := f'val/{judgement.baseline.format(name)}') in logs
            }
            last = self.last.get(judgement.metric)
            if last is None or not found:
                continue
            gains = ', '.join(
                f'{name.replace("_", " ")} {value:.1f} ({last - value:+.1f})'
                for name, value in found.items()
            )
            verdict = ''
            if judgement.margin is not None:
                verdict = f': {_verdict(last, found, judgement.margin)}'
            text = f'{judgement.title}: {last:.1f} %; {gains}{verdict}'
            runner.logger.info(text)
            self.gains.append(text)


def _verdict(last: float, baselines: dict[str, float], margin: float) -> str:
    """Say what a metric tells about a run.

    Args:
        last (float): The metric at the end.
        baselines (dict[str, float]): The metric of each baseline, by name. The
            encoder that the run started from comes first, then raw pixels.
        margin (float): The smallest difference that is meaningful.
    """
    gain = round(last - next(iter(baselines.values())), 1)  # as it is logged
    if gain <= -margin and 'untrained' in baselines:
        return 'less than untrained: train longer, or lower the rate'
    if gain <= -margin:
        return 'the run has lost what the encoder knew'
    if gain < margin:
        return (
            f'a change below {margin:g} points, too small to tell whether the '
            'run has learned (docs/method/health.md)'
        )
    if last < baselines.get('raw_pixels', last):
        return 'the run has learned, but raw pixels do better'
    return 'the run has learned'
