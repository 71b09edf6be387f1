# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parts of gpu.py that train, and look at losses and k-NN."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
from mmengine.model import is_model_wrapper

from gpu_figures import Outcome, Row
from gpu_setting import DEMO, ROOT, Setting
from launching import launch
from mmmoca.engine.launch import build_runner, load_config
from mmmoca.engine.training import prepare_training

DRAW = ROOT / 'tools' / 'dataset_converters' / 'make_textures.py'
NO_VALIDATION = dict.fromkeys(('val_cfg', 'val_dataloader', 'val_evaluator'))
KNN = 'knn/top1_k20'


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
    # MMEngine looks for the best from the first step on, not before.
    cfg.default_hooks.checkpoint.update(max_keep_ckpts=1, save_best=None)
    cfg.runner_type = 'mmmoca.QuietRunner'
    runner = build_runner(cfg)
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
        'data_root': f'{folder}/train',
        'knn_root': folder,
        'epochs': sizes.large_epochs,
        'batch_size': sizes.large_batch,
        'train_dataloader.num_workers': min(8, sizes.workers),
        'train_cfg.val_interval': sizes.large_epochs,
        'optim_wrapper.dtype': 'bfloat16',
        'compile': False,
    }
    yield knn_run(setting, 'textures', sizes.large_config, options)


def train_briefly(
    work_dir: str, options: dict, launcher: str
) -> dict[str, object]:
    """Train the demo's recipe; what it ran on, its losses and time."""
    cfg = load_config(DEMO, work_dir, options, launcher)
    cfg.experiment_name = Path(work_dir).name
    cfg.runner_type = 'mmmoca.QuietRunner'
    runner = build_runner(cfg)
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
