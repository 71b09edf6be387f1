# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compares the encoder of a run with what it started from."""

from typing import NamedTuple

from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, EpochBasedTrainLoop, Runner

from mmmoca.checkpoints.pretrained_init import starts_pretrained
from mmmoca.engine.mmengine import has_loaded, resumes
from mmmoca.engine.resume_check import validation_digest
from mmmoca.evaluation.features import raw_pixels

# Key of the message hub. MMEngine would log a name that begins like a mode.
_DIGEST = 'measured_by'
_NAMES = 'start', 'untrained', 'raw_pixels'


class Judgement(NamedTuple):
    """A metric that tells what a run has gained.

    Attributes:
        metric (str): Its name.
        baseline (str): Names of what it is compared with, for ``format``.
        title (str): What it is called.
        margin (float, optional): The least difference from the start that is
            said to be a gain or a loss.
    """

    metric: str
    baseline: str
    title: str
    margin: float | None = None


class BaselinesHook(Hook):
    """Measures what a run starts from, and says what it has gained.

    A resumed run has the numbers from the message hub of its checkpoint. With
    other settings of the validation, such as other views, they would be of
    something else: the run then measures the encoder that it goes on from, and
    chooses its best checkpoint from there on.

    Args:
        loop (BaseLoop): A validation, a :class:`FeatureLoop`.

    Attributes:
        gains (list[str]): What the log says at the end.
    """

    def __init__(self, loop: BaseLoop) -> None:
        self.loop = loop
        self.last: dict[str, float] = {}
        self.gains: list[str] = []

    def before_train(self, runner: Runner) -> None:
        """Measure the start, unless a run is resumed or never validates."""
        # A run that was stopped before its first step is resumed, too.
        goes_on = resumes(runner) and has_loaded(runner)
        loop = runner.train_loop
        by_epoch = isinstance(loop, EpochBasedTrainLoop)
        end = loop.max_epochs if by_epoch else loop.max_iters
        if loop.val_begin > end:
            return
        hub, digest = runner.message_hub, validation_digest(runner)
        known = hub.runtime_info.get(_DIGEST)  # no older version kept it
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
                # Under a name of the validation, whose log lines have it.
                key = judgement.baseline.format(name)
                runner.message_hub.update_scalar(f'val/{key}', value)
                runner.visualizer.add_scalars({key: value}, step=0)
                runner.logger.info(f'before training, {key}: {value:.2f}')

    def _forget(self, runner: Runner) -> None:
        """Forget what other settings of the validation have measured."""
        runner.logger.warning(
            'the validation has other settings or images than the run was '
            'saved with, so its numbers cannot be compared: what it starts '
            'from is the encoder that it goes on from, and the best '
            'checkpoint is the best from here on; the best_* files of before '
            'stay'
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
        """Keep the metrics. A complete run that is resumed has none."""
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
    """Say what a metric tells of a run.

    Args:
        last (float): The metric at the end.
        baselines (dict[str, float]): The metric of the encoder that the run
            started from, which comes first, and of raw pixels.
        margin (float): A smaller difference tells nothing.
    """
    gain = last - next(iter(baselines.values()))
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
        return 'the run has learned, but raw pixels agree more'
    return 'the run has learned'
