# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretrain a small ViT within minutes on a CPU and draw what it learned."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _arguments import (
    image_folder,
    import_stack,
    positive_integer,
    run_program,
)

# Without this variable, waiting threads would spin and take cores from the
# process that loads the images. OpenMP reads it when PyTorch is imported.
os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / 'configs' / 'demo'
TEXTURES = CONFIGS / 'moca_vit-tiny_textures.py'
OWN_IMAGES = CONFIGS / 'moca_vit-tiny_own-images.py'
# Images per step on the textures, and maximum number of images from --data.
BATCH_SIZE, MAX_IMAGES = 32, 5000
# Name in the report -> name of the scalar in the log.
KNN_NAMES = {
    'raw pixels': 'knn/raw_pixels_k20',
    'untrained': 'knn/untrained_k20',
    'teacher': 'knn/top1_k20',
}


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--data',
        type=image_folder,
        metavar='DIR',
        help='a folder of images, at any depth; if it has train/<class>/ and '
        'val/<class>/, k-NN accuracy is measured (by default a set of '
        'textures is drawn)',
    )
    parser.add_argument(
        '--out',
        type=Path,
        metavar='DIR',
        help='where results go; a stopped demo continues from there (by '
        'default work_dirs/demo, or work_dirs/demo_NAME with --data DIR/NAME)',
    )
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument(
        '--iters',
        type=positive_integer,
        default=1400,
        help='number of training steps, of 32 images each; with --data, twice '
        'as many steps of 16 images, rounded to whole epochs',
    )
    return parser


def default_folder(data: str | None) -> Path:
    """Return the folder of the results if --out is not given.

    Args:
        data (str, optional): Folder of the user's images.

    Returns:
        Path: A folder that is named after the folder of images, if any.
    """
    own = f'_{Path(data).resolve().name}' if data else ''
    return Path(f'work_dirs/demo{own}')


def textures_run(args: argparse.Namespace) -> dict:
    """Draw the textures if they are missing; return the run's settings.

    The seed of the textures is fixed; ``--seed`` is the seed of training.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        dict: Arguments of :func:`mmmoca.pretrain`.
    """
    tool = ROOT / 'tools' / 'drawn_sets' / 'make_textures.py'
    images = args.out / 'textures'
    if not images.is_dir():
        subprocess.run([sys.executable, tool, images, '--masks'], check=True)
    return {
        'data': images,
        'knn': images,
        'config': TEXTURES,
        'train_cfg.max_iters': args.iters,
        'train_cfg.val_interval': max(1, args.iters // 5),
        'default_hooks.checkpoint.interval': max(1, args.iters // 5),
        'default_hooks.logger.interval': max(1, args.iters // 40),
    }


def own_run(args: argparse.Namespace) -> dict:
    """Return the settings of a run on the user's images.

    If there are too many images, the run uses a random part of them.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        dict: Arguments of :func:`mmmoca.pretrain`.

    Raises:
        OSError: If there are no images.
    """
    from mmmoca.datasets import ImageFolder

    folder = Path(args.data)
    labelled = all((folder / split).is_dir() for split in ('train', 'val'))
    if labelled:
        folder /= 'train'
    found = ImageFolder(str(folder), with_label=False, pipeline=[]).data_list
    rows = range(len(found))
    if len(rows) > MAX_IMAGES:
        rows = random.Random(args.seed).sample(rows, MAX_IMAGES)
    print(f'  {len(rows)} images of {len(found)} in {folder}')
    epochs = max(1, round(args.iters * BATCH_SIZE / len(rows)))
    return {
        'data': [found[row]['img_path'] for row in rows],
        'knn': args.data if labelled else None,
        'config': OWN_IMAGES,
        'epochs': epochs,
        'train_cfg.val_interval': epochs,
        'train_dataloader.num_workers': min(4, os.cpu_count() or 1),
    }


def student_accuracy(checkpoint: Path, images: str | Path) -> float:
    """Measure the student's k-NN accuracy as the run measures the teacher's.

    Args:
        checkpoint (Path): Checkpoint of the run.
        images (str | Path): Folder with ``train`` and ``val``.
    """
    import mmmoca
    from mmmoca.apis.comparison import evaluate

    encoder = mmmoca.load(checkpoint, 'student')
    preset = encoder.preset._replace(temperature=0.07)
    with tempfile.TemporaryDirectory() as cache:
        found = evaluate(encoder, images, cache, preset, ['knn'])
    return found['knn']['k=20']


def run(args: argparse.Namespace) -> None:
    """Run all stages.

    Args:
        args (argparse.Namespace): The arguments.
    """
    out = args.out = args.out or default_folder(args.data)
    import_stack()
    import torch
    from mmengine.config import Config

    import mmmoca
    from mmmoca.files import write_figure
    from mmmoca.visualization.curves import draw_run, read_scalars
    from mmmoca.visualization.overview import draw_overview

    # A model this small gains nothing from more than four threads.
    torch.set_num_threads(min(4, torch.get_num_threads()))
    start = time.time()
    print('1/4 images', flush=True)
    settings = own_run(args) if args.data else textures_run(args)

    print('2/4 pretraining', flush=True)
    settings |= {'randomness.seed': args.seed}
    resume = any(out.glob('*.pth'))
    checkpoint = mmmoca.pretrain(
        out=out, resume=resume, progress=True, **settings
    )

    knn = {}
    if settings['knn']:
        print('3/4 k-NN accuracies', flush=True)
        scalars = read_scalars(out)
        knn = {name: scalars[key][1][-1] for name, key in KNN_NAMES.items()}
        knn['student'] = student_accuracy(checkpoint, settings['knn'])

    print('4/4 pictures', flush=True)
    cfg = Config.fromfile(out / settings['config'].name)
    pictures = [out / 'moca.png', out / 'curves.png']
    shown = None if settings['knn'] else args.data
    figure = draw_overview(
        cfg, checkpoint, shown, num_workers=0, seed=args.seed
    )
    write_figure(pictures[0], figure)
    write_figure(pictures[1], draw_run(out))

    print(f'\nThe demo took {time.time() - start:.0f} s.')
    for name, accuracy in knn.items():
        print(f'k-NN, {name:10}  {accuracy:5.1f} %')
    print('Look at', *pictures, sep='\n  ')


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    run_program(build_parser(), run, argv)


if __name__ == '__main__':
    main()
