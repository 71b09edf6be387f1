# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run would be, from its config, some images and three real steps."""

import copy
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from statistics import median

import numpy as np
import torch
from mmcv.transforms import LoadImageFromFile
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, init_default_scope

from mmmoca.models import OnlineCodebook

from .hooks.batch_size_hook import peak_rates
from .hooks.codebook_hook import CodebookHook
from .launch import build_runner
from .recipe import Run, codebook_advice, run_of
from .steps import unwrap_model

__all__ = ['dry_run']

# A hundred a second are read: images to say what a set is like.
SAMPLE = 1000
STEPS = 3
EDGES = (64, 128, 224, 512, 1024)


def dry_run(cfg: Config) -> list[tuple[str, str]]:
    """Look at the images of a config and take three steps; keep nothing.

    Args:
        cfg (Config): A config of training, completed by
            :func:`~mmmoca.engine.complete_recipe`. Not changed.

    Returns:
        list[tuple[str, str]]: What there is to know, and its value: images,
        their sizes, steps, learning rates, seconds and memory of a step.

    Raises:
        Exception: Whatever building the run or its first steps raise.
    """
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    run = run_of(cfg, len(dataset))
    return [*_of_images(dataset), *_of_steps(cfg, run)]


def _of_images(dataset: BaseDataset) -> Iterator[tuple[str, str]]:
    loaders = [
        transform
        for transform in dataset.pipeline.transforms
        if isinstance(transform, LoadImageFromFile)
    ]
    yield 'images', f'{len(dataset)}'
    if not loaders:
        return
    loader = copy.deepcopy(loaders[0])
    loader.max_unreadable = 1  # they are counted here
    number = min(len(dataset), SAMPLE)
    sides, unreadable = Counter(), 0
    for index in np.linspace(0, len(dataset) - 1, number).astype(int):
        results = loader.transform(dataset.get_data_info(index))
        if results is None:
            unreadable += 1
        else:
            side = min(results['ori_shape'])
            sides[int(np.searchsorted(EDGES, side, 'right'))] += 1
    yield 'unreadable', f'{unreadable} of the {number} looked at'
    bounds = [0, *EDGES, None]
    classes = [
        f'{bounds[i]} to {bounds[i + 1] - 1}'
        if bounds[i + 1]
        else f'{bounds[i]} and more'
        for i in sorted(sides)
    ]
    yield (
        'shorter side, pixels',
        ', '.join(f'{c}: {sides[i]}' for c, i in zip(classes, sorted(sides))),
    )


def _of_steps(cfg: Config, run: Run) -> Iterator[tuple[str, str]]:
    micro_batches = cfg.optim_wrapper.get('accumulative_counts', 1)
    short = copy.deepcopy(cfg)
    short.train_cfg = dict(
        type='IterBasedTrainLoop', max_iters=(STEPS + 1) * micro_batches
    )
    sampler = short.train_dataloader.get('sampler') or {}
    if str(sampler.get('type')).endswith('SeededSampler'):
        sampler.infinite = True  # as a run by iterations wants it
    short.val_cfg = short.val_dataloader = short.val_evaluator = None
    short.test_cfg = short.test_dataloader = short.test_evaluator = None
    short.param_scheduler = None
    short.default_hooks.checkpoint = None
    short.visualizer = None
    short.resume, short.log_level = False, 'WARNING'
    with tempfile.TemporaryDirectory() as scratch:
        short.work_dir = scratch
        runner = build_runner(short)
        for hook in runner.hooks:
            if isinstance(hook, CodebookHook):
                hook.advise = False  # of so few steps
        runner.train()
    history = {
        name: runner.message_hub.get_scalar(f'train/{name}').data[0]
        for name in ('time', 'data_time')
    }
    # The first step starts loaders and kernels.
    seconds, waiting = (
        median(history[name][micro_batches:]) * micro_batches
        for name in ('time', 'data_time')
    )
    yield 'images a step', f'{run.batch}'
    yield 'steps', f'{run.steps}'
    yield 'learning rates', peak_rates(runner)
    codebook = getattr(unwrap_model(runner.model), 'codebook', None)
    if codebook is not None:
        yield 'codebook', _of_codebook(codebook, run)
    yield 'a step', f'{seconds:.3g} s, {waiting:.2g} s of it for its images'
    whole = timedelta(seconds=round(run.steps * seconds))
    yield 'the run', f'{whole} without validation'
    yield 'memory of a process', _memory()


def _of_codebook(codebook: OnlineCodebook, run: Run) -> str:
    words, new_words = len(codebook.words), codebook.num_new_words
    report = (
        f'{words} words, {run.steps * new_words / words:.3g} times renewed'
    )
    advice = codebook_advice(run.steps, words, new_words)
    return f'{report}; {advice}' if advice else report


def _memory() -> str:
    if torch.cuda.is_available():
        used = torch.cuda.max_memory_reserved() / 2**30
        total = torch.cuda.get_device_properties(0).total_memory / 2**30
        return f'{used:.1f} of {total:.1f} GiB of the GPU'
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, Linux KiB.
    used /= 2**30 if sys.platform == 'darwin' else 2**20
    return f'{used:.1f} GiB, without those that load images'
