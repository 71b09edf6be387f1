# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Numbers that are not finite, images without content, and collapse.

A NaN or an infinity is put into an image, a gradient or a weight of short
runs, at a step that is drawn, on one process and on one of two. The run must
stop with an error that names the last good checkpoint, and everything on the
disk must be finite. Images that teach nothing must train or be refused; a
run whose features collapse must say so, and no other may.
"""

import math
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.runner import Runner
from PIL import Image

from mmmoca.checkpoints import read_checkpoint
from mmmoca.engine.steps import unwrap_model

from ...distributed import run_processes
from ...images import write_images
from ...runs import NO_VALIDATION, demo_runner
from .trials import Outcome

STEPS = 8


def trials(folder: Path) -> Iterator[Outcome]:
    """One process, two of them, and what the images may hold."""
    write_images(folder)
    chance = random.Random(random.random())  # runs seed the global one
    for value in (math.nan, math.inf, -math.inf):
        for place in PLACES:
            for clip in ('clipped', 'not clipped'):
                args = place, value, clip, chance.randrange(STEPS)
                problem = judge(folder, *spoil(folder, *args))
                yield Outcome(
                    'not finite, 1 process',
                    f'{value} in {place}, {clip}',
                    not problem,
                    problem,
                )
    for place in PLACES:
        args = place, math.nan, 'clipped', chance.randrange(STEPS)
        ends = run_processes(spoil, 2, folder, *args)
        problems = [judge(folder, *end) for end in ends]
        # Of two that stop at once, one may see the other go.
        lost = [p for p in problems if p and 'closed by peer' not in p]
        problem = '; '.join(lost if '' in problems else problems)
        yield Outcome(
            'not finite, 1 of 2 processes',
            f'nan in {place}',
            not problem,
            problem,
        )
    yield from contents(folder)


def into_image(runner: Runner, data_batch: dict, value: float) -> None:
    """As a transform that divides by zero would."""
    views = data_batch['inputs']
    views[0] = views[0].float()
    views[0][0, 0, 3, 3] = value


def into_gradient(runner: Runner, data_batch: dict, value: float) -> None:
    """Of a bias; the loss is finite."""
    bias = unwrap_model(runner.model).backbone.ln1.bias
    bias.register_hook(lambda grad: torch.full_like(grad, value))


def into_weight(runner: Runner, data_batch: dict, value: float) -> None:
    """As a bit that flips in memory would."""
    with torch.no_grad():
        unwrap_model(runner.model).backbone.ln1.weight[0] = value


PLACES: dict[str, Callable[[Runner, dict, float], None]] = {
    'an image': into_image,
    'a gradient': into_gradient,
    'a weight': into_weight,
}


def spoil(
    root: Path, place: str, value: float, clip: str, step: int
) -> tuple[str, str, str]:
    """Train; the work dir, and the kind and message of the error."""
    name = f'{place}, {value}, {clip}, {step}, {get_world_size()}'
    options = NO_VALIDATION | {
        'train_cfg.max_iters': STEPS,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': 9,
        'default_hooks.logger.interval': 3,
    }
    if clip != 'clipped':
        options['optim_wrapper.clip_grad'] = None
    runner = demo_runner(root, name, **options)
    call_hook = runner.call_hook

    def call(event: str, **kwargs) -> None:
        here = get_rank() == get_world_size() - 1
        if event == 'before_train_iter' and runner.iter == step and here:
            PLACES[place](runner, kwargs['data_batch'], value)
        call_hook(event, **kwargs)

    runner.call_hook = call
    try:
        runner.train()
    except RuntimeError as error:
        return name, type(error).__name__, str(error)
    return name, '', ''


def judge(root: Path, name: str, kind: str, message: str) -> str:
    """What is wrong with how a run ended, '' if nothing."""
    if kind not in ('NonFiniteLossError', 'NonFiniteStateError'):
        return f'ends with {kind or "no error"} {message[:200]}'
    files = list((root / name).glob('*.pth'))
    for file in files:
        for tensor in read_checkpoint(file)['state_dict'].values():
            if not tensor.isfinite().all():
                return f'{file.name} is not finite'
    newest = max((int(f.stem.split('_')[1]) for f in files), default=None)
    good = 'None' if newest is None else f'iter_{newest}.pth'
    named = re.search(
        r'The last good (?:checkpoint|one) is (.*?)[.:] (?i:resume)', message
    )
    if named is None or Path(named[1]).name != good:
        return f'{good} is not named: {message[:300]}'
    return ''


def contents(folder: Path) -> Iterator[Outcome]:
    """Train on images of all kinds, long enough for a collapse."""
    identical = folder / 'identical'
    write_images(identical, train=1, val=1, classes=1)
    (image,) = identical.glob('train/*/*')
    for index in range(1, 48):
        shutil.copy(image, image.with_name(f'{index}.jpg'))
    yield alarm('images that differ', folder, False)
    yield alarm('one image, 48 times', identical)
    for shade in (0, 128, 255):
        plain = folder / f'plain_{shade}'
        (plain / 'train').mkdir(parents=True)
        for index in range(48):
            Image.new('L', (64, 64), shade).save(
                plain / 'train' / f'{index}.png'
            )
        # Place and brightness still differ, so that some learn from them.
        yield alarm(f'images of shade {shade} alone', plain)
    rate = {'optim_wrapper.optimizer.lr': 1.0}
    yield alarm('learning rate of 1', folder, True, rate)


def alarm(
    name: str,
    root: Path,
    expected: bool | None = None,
    options: dict | None = None,
) -> Outcome:
    """Whether a run's log says that its features collapse just if they do."""
    options = (options or {}) | NO_VALIDATION
    options |= {
        'train_cfg.max_iters': 300,
        'default_hooks.checkpoint.interval': 10**6,
        'log_level': 'WARNING',
    }
    runner = demo_runner(root, f'run_{name}'.replace(' ', '_'), **options)
    runner.train()
    log = Path(runner.log_dir, f'{runner.timestamp}.log').read_text()
    msd = runner.message_hub.get_scalar('train/msd').data[0]
    said = log.count('msd has fallen')
    collapsed = bool(msd.min() < 0.1)
    return Outcome(
        'collapse is said, and nothing else',
        name,
        said == collapsed and expected in (None, collapsed),
        f'{said} warnings; msd from {msd.min():.3f} to {msd.max():.3f}',
    )
