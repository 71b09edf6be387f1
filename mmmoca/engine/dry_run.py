# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Describes a run in advance, from its config and a few real steps."""

import copy
import math
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import timedelta
from itertools import islice
from statistics import median

import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner, ValLoop

from mmmoca.datasets.look import Look
from mmmoca.messages import listed
from mmmoca.models import Mask

from .hooks.look_hook import LookHook
from .mmengine import forget_name
from .options import place
from .recipe import (
    NEW_WORDS,
    complete_recipe,
    count_micro_batches,
    run_size,
    scale_lr,
    training_set,
)
from .slips import likely_slips
from .steps import unwrap_model
from .training import build_runner

STEPS = 3
SHORT = 10_000  # a run of fewer steps may need a smaller batch
BEST_BATCH = 16  # for short runs: docs/benchmarks/own_images.md


def wait_for_device() -> None:
    """Wait until the GPU, if there is one, has finished its work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


class _Enough(BaseException):
    """Ends a rehearsal. A runner would log it if it were an Exception."""


class _RehearsalHook(Hook):
    """Ends a run after some training iterations and two validation batches.

    It also waits for the device before MMEngine's timer reads the clock.

    Args:
        iterations (int): Number of training iterations.
        begin (Callable[[Look | None], None]): Called before the first
            iteration, with what :class:`LookHook` found in the data.

    Attributes:
        validation (float | None): Estimated seconds of a whole validation;
            None if no batch was validated.

    Raises:
        _Enough: After the iterations.
    """

    priority = 'VERY_HIGH'

    def __init__(
        self, iterations: int, begin: Callable[[Look | None], None]
    ) -> None:
        self.iterations, self.begin = iterations, begin
        self.validation: float | None = None

    def before_train_iter(self, runner: Runner, *_, **__) -> None:
        """End the run if all iterations are done."""
        if runner.iter == 0:
            self.begin(_look_of(runner))
        if runner.iter == self.iterations:
            self.after_train(runner)
            raise _Enough

    def after_train_iter(self, *_, **__) -> None:
        """Wait until the GPU has finished the iteration."""
        wait_for_device()

    def after_train(self, runner: Runner) -> None:
        """Validate two batches, and compute the metrics of their images.

        This shows errors that would otherwise end the real run at its first
        validation. Validations on frozen features, such as k-NN, are left out,
        because they would first extract the features of all their images.
        """
        loop = runner.val_loop
        if not isinstance(loop, ValLoop):
            return
        runner.model.eval()
        loader, times = loop.dataloader, []
        start = time.perf_counter()
        # Only the first batch waits for the workers of the loader to start.
        for batch in islice(loader, 2):
            loop.run_iter(len(times), batch)
            wait_for_device()
            times.append(time.perf_counter() - start)
            start += times[-1]
        self.validation = times[0] + (len(loader) - 1) * times[-1]
        with redirect_stdout(None):  # pycocotools prints
            loop.evaluator.evaluate(len(loader.dataset))


def dry_run(
    cfg: Config,
    begin: Callable[[Look | None], None] = lambda look: None,
    processes: int | None = None,
) -> dict[str, str]:
    """Count the images of a run and take a few steps. Nothing is kept.

    Two validation batches are evaluated, too.

    Args:
        cfg (Config): The config that :func:`~mmmoca.engine.config.read_run`
            returned. It is not changed.
        begin (Callable[[Look | None], None]): Called before the first step,
            with what :class:`LookHook` found in the data, or with None if
            ``look`` of the config is None.
        processes (int, optional): Number of processes of the run to describe.
            If it is given, the dry run takes the steps that one of these
            processes would take. Defaults to the number of processes that were
            started.

    Returns:
        dict[str, str]: Facts by title: what the run starts from; the numbers
        of images and steps; the peaks of the learning rates; likely slips in
        the config; parameters without a gradient; the times of the first step,
        of a later step, of the run and of a validation; the memory of a GPU;
        the patches of each masking round; how often the codebook is renewed;
        and the numbers that follow from images and steps.

    Raises:
        Exception: Any error from building the run, from its first steps or
            from the validation batches.
    """
    short, dataset = copy.deepcopy(cfg), training_set(cfg)
    if processes is not None:
        short.assumed_processes = processes
    numbers = complete_recipe(short, len(dataset)) | scale_lr(short)
    run = run_size(short, len(dataset))
    new_words = place(short, NEW_WORDS)[1]
    if processes is not None and new_words:
        # One process's batch may have fewer images than there are new words.
        fitting = math.gcd(new_words, short.train_dataloader.batch_size)
        short.model.codebook.num_new_words = fitting
    _keep_nothing(short)
    micro_batches = count_micro_batches(cfg)
    with tempfile.TemporaryDirectory() as short.work_dir:
        runner = build_runner(short, dataset)
        rehearsal = _RehearsalHook((1 + STEPS) * micro_batches, begin)
        runner.register_hook(rehearsal)
        try:
            runner.train()
        except _Enough:
            runner.call_hook('after_run')
        finally:
            forget_name(runner)  # its work dir is temporary
    times = runner.message_hub.get_scalar('train/time').data[0]
    first = sum(times[:micro_batches])
    # A run of one step has no later step.
    others = times[micro_batches:]
    seconds = micro_batches * median(others if len(others) else times)
    whole = first + (run.steps - 1) * seconds
    filled = [
        line for hook in runner.hooks for line in getattr(hook, 'filled', ())
    ]
    slips = likely_slips(short)
    report = {
        **({'starts from': '; '.join(filled)} if filled else {}),
        'images': f'{run.images}',
        'images a step': f'{run.batch}',
        'steps': f'{run.steps}',
        **_rates(runner.optim_wrapper.optimizer.param_groups),
        **({'note': '; '.join(slips)} if slips else {}),
        **_without_gradient(runner),
        'the first step': f'{first:.3g} s (compiling, loading)',
        'a step': f'{seconds:.3g} s',
        'the run': f'{timedelta(seconds=round(whole))} without validation',
    }
    if rehearsal.validation is not None:
        report['a validation'] = f'{rehearsal.validation:.3g} s'
    small = run.steps < SHORT and run.batch > BEST_BATCH
    if cfg.get('settings') == 'own_images' and small:
        report['a smaller batch'] = (
            f'for equal training time, {BEST_BATCH} images a step gave a '
            'small ViT the best features (docs/benchmarks/own_images.md)'
        )
    if torch.cuda.is_available():
        memory = torch.cuda.max_memory_reserved() / 2**30
        report['memory of a GPU'] = f'{memory:.1f} GiB'
    model = unwrap_model(runner.model)
    if hasattr(model, 'masking'):
        rounds = model.draw_masks(1, torch.device('cpu'))
        report['masks'] = '; '.join(map(_described, rounds))
    codebook = getattr(model, 'codebook', None)
    if codebook is not None:
        words = len(codebook.words)
        new_words = new_words or codebook.num_new_words
        turns = run.steps * new_words / words
        report['codebook'] = f'{words} words, renewed {turns:.3g} times'
        if turns < 1:
            report['codebook'] += ': some stay noise, so lower num_words'
    return report | {key: f'{value:g}' for key, value in numbers.items()}


def _look_of(runner: Runner) -> Look | None:
    """Return what the :class:`LookHook` of a run, if any, has found."""
    hooks = [hook for hook in runner.hooks if isinstance(hook, LookHook)]
    return hooks[0].look if hooks else None


def _described(mask: Mask) -> str:
    """Say how many patches the student sees and predicts in a round."""
    parts = mask.visible, mask.predicted
    seen, predicted = ({*part[0].tolist()} for part in parts)
    text = f'{len(seen)} patches seen, {len(predicted)} predicted'
    both = len(seen & predicted)
    return f'{text}, {both} both seen and predicted' if both else text


def _without_gradient(runner: Runner) -> dict[str, str]:
    """List trainable parameters that no step has given a gradient."""
    # An optimiser creates the state of a parameter at its first gradient.
    states = runner.optim_wrapper.optimizer.state
    still = [
        name
        for name, parameter in unwrap_model(runner.model).named_parameters()
        if parameter.requires_grad and parameter not in states
    ]
    if not still or not states:  # SGD without momentum has no states
        return {}
    return {'without a gradient': f'{len(still)} parameters, {listed(still)}'}


def _keep_nothing(cfg: Config) -> None:
    """Change a config so that its run writes no files and skips validation."""
    # The validation is built, to show errors in its config, but the run never
    # begins it. _RehearsalHook validates two batches.
    if cfg.get('val_cfg'):
        cfg.train_cfg.val_begin = sys.maxsize
    for part in ('cfg', 'dataloader', 'evaluator'):
        cfg[f'test_{part}'] = None
    hooks = cfg.get('default_hooks') or {}
    # A signal ends the run at once, because there is nothing to save.
    cfg.default_hooks = dict(hooks, checkpoint=None)
    cfg.default_hooks.pop('preemption', None)
    if hooks.get('logger'):
        hooks.logger.pop('out_dir', None)
    cfg.visualizer, cfg.resume, cfg.log_level = None, False, 'ERROR'


def _rates(groups: list[dict]) -> dict[str, str]:
    """Return the peak learning rates of the prototypes and of the rest."""
    rates: dict[str, set[float]] = {}
    for group in groups:
        # Only prototypes have a constant rate above 0. A rate of 0 belongs to
        # parameters that `custom_keys` freezes.
        own = 'lr' in group.get('constant', ()) and group['lr']
        name = 'learning rate of prototypes' if own else 'learning rate'
        rates.setdefault(name, set()).add(group.get('initial_lr', group['lr']))
    return {
        name: ' to '.join(f'{r:g}' for r in sorted({min(found), max(found)}))
        for name, found in rates.items()
    }
