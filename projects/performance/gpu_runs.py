# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parts of gpu.py that run tests and whole trainings."""

import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median
from xml.etree import ElementTree

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from torch.profiler import ProfilerActivity, profile

from gpu_figures import Failure, Outcome, Row
from gpu_setting import DEMO, ROOT, Setting
from host_waits import count_waits, idle_share, read_trace
from launching import launch
from mmmoca.engine.launch import build_runner, load_config
from mmmoca.engine.training import prepare_training
from pipelines import write_photos

DRAW = ROOT / 'tools' / 'dataset_converters' / 'make_textures.py'
NO_VALIDATION = dict.fromkeys(('val_cfg', 'val_dataloader', 'val_evaluator'))
KNN = 'knn/top1_k20'
MARKED = 'gpu and not processes'


def tests(setting: Setting) -> Iterator[Outcome]:
    """The tests that a GPU changes, and those that need one."""
    report = setting.out / 'tests.xml'
    report.unlink(missing_ok=True)
    # Others need not even import what they need.
    marked = [
        str(path)
        for path in sorted((ROOT / 'tests').rglob('test_*.py'))
        if 'mark.gpu' in path.read_text()
    ]
    # Where pytest ends badly without a report, its output says why.
    done = subprocess.run(
        [
            *(sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider'),
            f'--junitxml={report}',
            *(setting.sizes.tests or ['-m', MARKED, *marked]),
        ],
        cwd=ROOT,
    )
    if not report.exists():
        yield Failure('pytest', f'ended with status {done.returncode}')
        return
    yield from read_tests(report)


def read_tests(report: Path) -> Iterator[Outcome]:
    """A row for each file of a report of pytest, and what failed."""
    counts: dict[str, Counter] = {}
    for case in ElementTree.parse(report).getroot().iter('testcase'):
        file, test = case.get('classname'), case.get('name')
        count = counts.setdefault(file, Counter())
        count['s'] += float(case.get('time', 0))
        # 'skipped', 'failure' or 'error' with a message, if it has not passed.
        end = next(
            (x for x in case if x.tag in ('skipped', 'failure', 'error')), None
        )
        kind = 'passed' if end is None else end.tag
        count[kind] += 1
        if kind in ('failure', 'error'):
            message = end.get('message', '').strip().split('\n')[0]
            yield Failure(f'{file}.{test}', message)
    for file, count in counts.items():
        kinds = 'passed', 'skipped', 'failure', 'error'
        yield Row(
            'Tests',
            {'file': file, **{k: count[k] for k in kinds}, 's': count['s']},
        )


def draw_textures(
    setting: Setting, train: int, val: int, size: int = 48
) -> str:
    """The folder of the drawn set; it is drawn once."""
    folder = setting.out / f'textures_{size}_{train}'
    numbers = {'--train': train, '--val': val, '--size': size}
    numbers['--workers'] = max(1, setting.sizes.workers)
    command = [sys.executable, DRAW, folder]
    for option in numbers.items():
        command += map(str, option)
    subprocess.run(command, check=True)
    return str(folder)


def knn_run(setting: Setting, name: str, config: Path, options: dict) -> Row:
    """Train, with k-NN before and after."""
    cfg = load_config(config, str(setting.out / name), options)
    prepare_training(cfg)
    cfg.experiment_name = name
    cfg.default_hooks.checkpoint.max_keep_ckpts = 1
    runner = build_runner(cfg, quiet=True)
    before = runner.val()
    start = time.time()
    runner.train()
    spent = time.time() - start
    after = runner.message_hub.get_scalar(f'val/{KNN}').current()
    seconds = runner.message_hub.get_scalar('train/time').data[0]
    loader = cfg.train_dataloader
    return Row(
        'Runs, with k-NN accuracy of the teacher before and after',
        {
            'config': config.stem,
            'steps': runner.iter,
            'batch': loader.batch_size,
            'k-NN before, %': before[KNN],
            'k-NN after, %': after,
            'img/s': loader.batch_size / median(seconds),
            's': spent,
        },
    )


def demo(setting: Setting) -> Iterator[Outcome]:
    """The recipe of the quick start."""
    folder = draw_textures(setting, *setting.sizes.textures)
    steps = setting.sizes.demo_steps
    options = {
        **_drawn(folder),
        'train_dataloader.num_workers': min(8, setting.sizes.workers),
        'train_cfg.max_iters': steps,
        'train_cfg.val_interval': steps,
        'default_hooks.checkpoint.interval': steps,
        'compile': False,
    }
    yield knn_run(setting, 'demo', DEMO, options)


def _drawn(folder: str) -> dict[str, str]:
    """Options that let the loaders of the demo's config read a folder."""
    keys = 'train_dataloader', 'val_dataloader', 'val_cfg.bank_dataloader'
    return {f'{key}.dataset.data_root': folder for key in keys}


def textures(setting: Setting) -> Iterator[Outcome]:
    """A recipe for one's own images, on large drawn ones."""
    sizes = setting.sizes
    folder = draw_textures(setting, *sizes.large_textures)
    options = {
        'train_dataloader.batch_size': sizes.large_batch,
        'optim_wrapper.dtype': 'bfloat16',
        'compile': False,
    }
    if sizes.large_config == DEMO:
        options |= _drawn(folder) | {'train_cfg.max_iters': 3}
    else:
        options |= {
            'data_root': f'{folder}/train',
            'knn_root': folder,
            'epochs': sizes.large_epochs,
            'train_cfg.val_interval': sizes.large_epochs,
        }
    yield knn_run(setting, 'textures', sizes.large_config, options)


def train_briefly(
    work_dir: str, options: dict, launcher: str
) -> dict[str, object]:
    """Train the demo's recipe; what it ran on, its losses and time."""
    cfg = load_config(DEMO, work_dir, options, launcher)
    cfg.experiment_name = Path(work_dir).name
    runner = build_runner(cfg, quiet=True)
    runner.train()
    history = runner.message_hub.get_scalar
    wrapped = is_model_wrapper(runner.model)
    return dict(
        backend=torch.distributed.get_backend() if wrapped else '',
        model=type(runner.model).__name__,
        losses=history('train/loss').data[0].tolist(),
        ms=median(history('train/time').data[0]) * 1e3,
    )


def distributed(setting: Setting) -> Iterator[Outcome]:
    """One process of torchrun against none, the same steps."""
    folder = draw_textures(setting, *setting.sizes.textures)
    options = {
        **_drawn(folder),
        **NO_VALIDATION,
        'train_dataloader.num_workers': min(2, setting.sizes.workers),
        'train_cfg.max_iters': setting.sizes.few_steps,
        'default_hooks.checkpoint': None,
        'optim_wrapper.dtype': 'float32',
        'compile': False,
    }
    out = f'{setting.out}/distributed'
    alone = train_briefly(f'{out}_none', options, 'none')
    (ddp,) = launch(train_briefly, 1, f'{out}_ddp', options, 'pytorch')
    for launcher, run in {'none': alone, 'torchrun': ddp}.items():
        differences = [
            abs(a / b - 1) for a, b in zip(run['losses'], alone['losses'])
        ]
        yield Row(
            "Processes, the quick start's recipe in fp32",
            {
                'launcher': launcher,
                'backend': run['backend'] or '-',
                'model': run['model'],
                'steps': len(run['losses']),
                'ms': run['ms'],
                'last loss': run['losses'][-1],
                'first loss differs by': differences[0],
                'largest difference': max(differences),
            },
        )


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
        'default_hooks.checkpoint': None,
        'optim_wrapper.dtype': 'bfloat16',
        'log_level': 'WARNING',
    }
    if setting.tiny:
        options['compile'] = False
    cfg = load_config(network.config, str(setting.out / 'runner'), options)
    run = build_runner(cfg, quiet=True)
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
    """Images a second of the loader alone, two views each."""
    sizes, network = setting.sizes, setting.sizes.base
    cfg = load_config(network.config, str(setting.out), _photos(setting))
    init_default_scope(cfg.default_scope)
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    batches = iter(loader)
    # What the workers have ready at the start does not count.
    for _ in range(1 + 2 * sizes.workers):
        next(batches)
    start = time.perf_counter()
    for _ in range(sizes.batches):
        next(batches)
    seconds = time.perf_counter() - start
    speed = sizes.batches * network.batch / seconds
    yield Row(
        'The loader alone, JPEG files of 500 x 375',
        {
            'workers': sizes.workers,
            'img/s': speed,
            'img/s a worker': speed / max(1, sizes.workers),
        },
    )
