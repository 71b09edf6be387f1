# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What of a start survives training: k-NN by recipe, as a table.

A small ViT is pretrained on drawn textures of six classes. From its encoder,
or from all of it, pretraining goes on with few images of six other classes.
Runs that are there are not repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
CONFIG = 'demo/moca_vit-tiny_textures.py'
ACCURACY = 'knn/top1_k20'
LR = 'optim_wrapper.optimizer.lr'
WARMUP = 'param_scheduler.warmup'
MOMENTUM = 'default_hooks.teacher_ema.momentum'
# Name, what it starts from, and what it changes.
RECIPES = (
    ('from scratch', None, {}),
    ('encoder, recipe unchanged', 'encoder.pth', {}),
    ('encoder, lr / 4', 'encoder.pth', {LR: 5e-4}),
    ('encoder, lr / 10', 'encoder.pth', {LR: 2e-4}),
    ('encoder, lr / 40', 'encoder.pth', {LR: 5e-5}),
    (
        'encoder, lr / 4, warm-up 30 %',
        'encoder.pth',
        {LR: 5e-4, WARMUP: 0.3},
    ),
    (
        'encoder, lr / 4, warm-up 30 %, m_0 0.99',
        'encoder.pth',
        {LR: 5e-4, WARMUP: 0.3, MOMENTUM: 0.99},
    ),
    (
        'encoder, lr / 10, warm-up 30 %, m_0 0.99',
        'encoder.pth',
        {LR: 2e-4, WARMUP: 0.3, MOMENTUM: 0.99},
    ),
    (
        'encoder, lr / 10, warm-up 30 %, m_0 0.999',
        'encoder.pth',
        {LR: 2e-4, WARMUP: 0.3, MOMENTUM: 0.999},
    ),
    ('all of MOCA, recipe unchanged', 'whole.pth', {}),
    ('all of MOCA, lr / 4', 'whole.pth', {LR: 5e-4}),
    (
        'all of MOCA, lr / 10, warm-up 30 %, m_0 0.99',
        'whole.pth',
        {LR: 2e-4, WARMUP: 0.3, MOMENTUM: 0.99},
    ),
)


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path, help='folder of images and runs')
    parser.add_argument('--start-images', type=int, default=3000)
    parser.add_argument('--start-iters', type=int, default=600)
    parser.add_argument('--images', type=int, default=500)
    parser.add_argument('--iters', type=int, default=400)
    parser.add_argument('--seeds', type=int, default=2)
    return parser.parse_args()


def tool(name: str, *arguments: object) -> None:
    """Run a command of tools/."""
    command = [sys.executable, ROOT / 'tools' / name, *arguments]
    subprocess.run([*map(str, command)], check=True, cwd=ROOT)


def draw(out: Path, images: int, val: int, seed: int, odd: bool) -> Path:
    """Draw textures, and take every other class of them.

    Args:
        out (Path): Folder of both.
        images (int): Training images to be left.
        val (int): Validation images to be left.
        seed (int): Of the drawing.
        odd (bool): The second, fourth, ... class, or the first, third, ...

    Returns:
        Path: A folder of links to the classes.
    """
    textures, half = out / f'textures_{seed}', out / f'half_{seed}'
    tool(
        'dataset_converters/make_textures.py',
        textures,
        *('--train', 2 * images, '--val', 2 * val, '--seed', seed),
    )
    for split in ('train', 'val'):
        (half / split).mkdir(parents=True, exist_ok=True)
        for folder in sorted((textures / split).iterdir())[odd::2]:
            link = half / split / folder.name
            if not link.exists():
                link.symlink_to(folder)
    return half


def train(
    work: Path, images: Path, iters: int, options: dict, *arguments: object
) -> Path:
    """Pretrain on images unless it has been done.

    Args:
        work (Path): The work dir.
        images (Path): Folder of ``train`` and ``val``.
        iters (int): Steps; k-NN is measured eight times.
        options (dict): What changes in the config.
        *arguments (object): Further ones of tools/train.py.

    Returns:
        Path: Its last checkpoint.
    """
    checkpoint = work / f'iter_{iters}.pth'
    interval = max(1, iters // 8)
    options = {
        'train_dataloader.dataset.data_root': images,
        'val_cfg.data_root': images,
        'train_cfg.max_iters': iters,
        'train_cfg.val_interval': interval,
        'default_hooks.checkpoint.interval': iters,
        **options,
    }
    if not checkpoint.is_file():
        tool(
            'train.py',
            CONFIG,
            *('--work-dir', work, *arguments, '--cfg-options'),
            *(f'{key}={value}' for key, value in options.items()),
        )
    return checkpoint


def accuracies(work: Path) -> list[float]:
    """What a run measured by k-NN, in per cent, in its order."""
    log = max(work.glob('*/vis_data/scalars.json'))
    lines = map(json.loads, log.read_text().splitlines())
    return [line[ACCURACY] for line in lines if ACCURACY in line]


def main() -> None:
    """Draw, train and print the table."""
    args = parse_args()
    out = args.out.resolve()
    others = draw(out, args.start_images, 600, seed=1, odd=False)
    own = draw(out, args.images, 600, seed=2, odd=True)
    start = train(out / 'start', others, args.start_iters, {})
    (out / 'whole.pth').unlink(missing_ok=True)
    (out / 'whole.pth').symlink_to(start)
    tool('model_converters/extract_backbone.py', start, out / 'encoder.pth')
    tool(
        'test.py',
        *(CONFIG, start, '--work-dir', out / 'before'),
        *('--out', out / 'before.json', '--out-item', 'metrics'),
        *('--cfg-options', f'test_cfg.data_root={own}'),
    )
    before = json.loads((out / 'before.json').read_text())[ACCURACY]
    rows = []
    for number, (name, init, options) in enumerate(RECIPES):
        runs = []
        for seed in range(args.seeds):
            work = out / f'recipe_{number}_seed_{seed}'
            arguments = ('--init', out / init) if init else ()
            options = options | {'randomness.seed': seed}
            train(work, own, args.iters, options, *arguments)
            runs.append(accuracies(work))
        curve = [mean(values) for values in zip(*runs)]
        ends = [values[-1] for values in runs]
        rows.append(
            f'| {name} | {f"{before:.1f}" if init else ""} '
            f'| {curve[0]:.1f} | {max(curve):.1f} | {curve[-1]:.1f} '
            f'({min(ends):.1f} to {max(ends):.1f}) |'
        )
    eighth = max(1, args.iters // 8)
    print(f'| | before | step {eighth} | best | step {args.iters} |')
    print('|---|---|---|---|---|', *rows, sep='\n')


if __name__ == '__main__':
    main()
