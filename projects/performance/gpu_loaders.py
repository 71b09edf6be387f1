# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parts of gpu.py on files: the Runner, step by step, and its loader."""

import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

import torch
from mmengine.hooks import Hook
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from torch.profiler import ProfilerActivity, profile

from gpu_figures import Outcome, Row
from gpu_runs import NO_VALIDATION
from gpu_setting import Setting
from host_waits import count_waits, idle_share, read_trace
from measure import median_seconds
from mmmoca.engine.launch import build_runner, load_config
from mmmoca.registry import MODELS
from pipelines import GPU_VIEWS, write_photos


class Watch(Hook):
    """Times, profiles and listens to some steps of a run.

    Args:
        trace (Path): Where the profile goes (.json.gz).
        on_gpu (bool): Whether there is a GPU to watch.
        steps (tuple[int, int, int]): Before the timing, timed, and both
            profiled and listened to.

    Attributes:
        seconds (float): Of a timed step.
        waits (Counter): Places at which PyTorch said that it waits.
    """

    priority = 'LOWEST'

    def __init__(
        self, trace: Path, on_gpu: bool, steps: tuple[int, int, int]
    ) -> None:
        first, timed, watched = steps
        self.trace, self.on_gpu = trace, on_gpu
        self.start, self.end = first, first + timed
        self.profiled = self.end + watched
        self.last = self.profiled + watched
        self.waits: Counter = Counter()
        self._open = ExitStack()

    def before_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        """Begin or end what is due."""
        if runner.iter == self.start:
            self._since = self._now()
        if runner.iter == self.end:
            timed = self.end - self.start
            self.seconds = (self._now() - self._since) / timed
            kind = (
                ProfilerActivity.CUDA if self.on_gpu else ProfilerActivity.CPU
            )
            self._profile = self._open.enter_context(
                profile(activities=[kind])
            )
        if runner.iter == self.profiled:
            self._open.close()
            self._profile.export_chrome_trace(str(self.trace))
            heard = warnings.catch_warnings(record=True)
            self._warnings = self._open.enter_context(heard)
            warnings.simplefilter('always')
            self._speak_up('warn')
        if runner.iter == self.last:
            self._speak_up('default')
            self._open.close()
            self.waits.update(
                f'{Path(w.filename).name}:{w.lineno}'
                for w in self._warnings
                if 'synchroniz' in str(w.message)
            )

    def _speak_up(self, mode: str) -> None:
        if self.on_gpu:
            torch.cuda.set_sync_debug_mode(mode)

    def _now(self) -> float:
        if self.on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()


def runner(setting: Setting) -> Iterator[Outcome]:
    """The Runner on photos, with its loader: rate, waits, idle device."""
    sizes, network = setting.sizes, setting.sizes.base
    steps = (10, 20, 3) if setting.on_gpu else (1, 1, 1)
    trace = setting.out / 'trace.json.gz'
    watch = Watch(trace, setting.on_gpu, steps)
    options = {
        **_photos(setting),
        **NO_VALIDATION,
        'train_cfg': dict(
            _delete_=True,
            type='IterBasedTrainLoop',
            # The last step reads the log.
            max_iters=watch.last + 2,
        ),
        'param_scheduler': None,
        # The paper's, of four images or more.
        'model.codebook.num_new_words': 4,
        'default_hooks.checkpoint': None,
        'optim_wrapper.dtype': 'bfloat16',
        'log_level': 'WARNING',
    }
    if setting.tiny:
        options['compile'] = False
    cfg = load_config(network.config, str(setting.out / 'runner'), options)
    cfg.runner_type = 'mmmoca.QuietRunner'
    run = build_runner(cfg)
    run.register_hook(watch)
    run.train()
    waiting = run.message_hub.get_scalar('train/data_time').data[0]
    timed = slice(watch.start, watch.end)
    events = read_trace(trace)
    idle = idle_share(events)
    yield Row(
        'The Runner on JPEG files, bf16',
        {
            'network': f'{network.title}, batch {network.batch}',
            'compile': str(cfg.get('compile', False)),
            'workers': sizes.workers,
            'img/s': network.batch / watch.seconds,
            'ms': watch.seconds * 1e3,
            'of it for images, ms': fmean(waiting[timed]) * 1e3,
            'device idle, %': None if idle is None else 100 * idle,
            'host waits': sum(count_waits(events).values()),
        },
    )
    for call, number in count_waits(events).most_common():
        yield f'Host waits in {steps[2]} steps: {number} x {call}.'
    for place, number in watch.waits.most_common():
        yield f'PyTorch waits in {steps[2]} steps: {number} x at {place}.'


def _photos(setting: Setting) -> dict[str, object]:
    """Options that let the training loader read photos without end."""
    sizes = setting.sizes
    folder = setting.out / 'photos'
    if len(list(folder.glob('*.jpg'))) < sizes.photos:
        folder.mkdir(exist_ok=True)
        write_photos(str(folder), sizes.photos, (375, 500))
    loader = 'train_dataloader'
    return {
        f'{loader}.dataset.data_root': str(folder),
        f'{loader}.dataset.data_prefix': '',
        f'{loader}.batch_size': sizes.base.batch,
        f'{loader}.num_workers': sizes.workers,
        f'{loader}.sampler.infinite': True,
    }


def pipeline(setting: Setting) -> Iterator[Outcome]:
    """Images a second of the loader alone; views that the device makes."""
    sizes, batch = setting.sizes, setting.sizes.base.batch
    for config in (sizes.base.config, GPU_VIEWS):
        cfg = load_config(config, str(setting.out), _photos(setting))
        init_default_scope(cfg.default_scope)
        loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
        batches = iter(loader)
        # What the workers have ready at the start does not count.
        for _ in range(1 + 2 * sizes.workers):
            next(batches)
        start = time.perf_counter()
        for _ in range(sizes.batches):
            last = next(batches)
        speed = sizes.batches * batch / (time.perf_counter() - start)
        yield Row(
            'The loader alone, JPEG files of 500 x 375',
            {
                'config': config.stem,
                'workers': sizes.workers,
                'img/s': speed,
                'img/s a worker': speed / max(1, sizes.workers),
            },
        )
        del batches
    prepare = MODELS.build(cfg.model.data_preprocessor).to(setting.device)
    forms = {'views': lambda: prepare(last, True)}
    seconds = median_seconds(forms, sizes.repeats, warm_up=sizes.warm_up)
    yield Row(
        'Two views made on the device, 224 pixels',
        {
            'batch': batch,
            'ms': seconds['views'] * 1e3,
            'img/s': batch / seconds['views'],
        },
    )
