# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretrain a small ViT within minutes on a CPU and draw what it learnt."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from _arguments import image_folder, import_stack, one_line_errors

if TYPE_CHECKING:
    from mmengine.config import Config

# Threads that spin while they wait take the cores from the process that loads
# the images. OpenMP reads this when PyTorch is imported.
os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / 'configs' / 'demo' / 'moca_vit-tiny_textures.py'
OWN_IMAGES = CONFIG.with_name('moca_vit-tiny_own-images.py')
# MMEngine writes it into checkpoints, followed by the time of the start.
NAME = f'{CONFIG.stem}_demo'
KNN_NAMES = dict(
    raw_pixels='raw pixels', untrained='untrained', top1='teacher'
)
MIN_IMAGES, MAX_IMAGES = 100, 5000
MIN_CLASS = 12
# The smallest crop, 0.3 of the area at a ratio of 3 / 4, has 48 pixels then.
SHORT_SIDE = 104


def parse_args(
    argv: Sequence[str] | None = None,
) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    data = (
        'a folder of images, at any depth; where they lie in folders of '
        'classes, k-NN accuracy is measured (by default a set of textures is '
        'drawn)'
    )
    add('--data', type=image_folder, metavar='DIR', help=data)
    out = (
        'where results go (by default work_dirs/demo, followed by the name '
        "of the --data folder if there's one)"
    )
    add('--out', metavar='DIR', type=Path, help=out)
    add('--seed', type=int, default=0)
    add('--iters', type=int, help="training steps (by default the config's)")
    args = parser.parse_args(argv)
    if args.iters is not None and args.iters < 2:
        parser.error(f'--iters must be at least 2, got {args.iters}')
    if args.out is None:
        own = f'_{Path(args.data).resolve().name}' if args.data else ''
        args.out = Path(f'work_dirs/demo{own}')
    return parser, args


def draw_textures(out: Path) -> Path:
    """Draw the texture set under ``out`` unless it is there.

    Its own seed is fixed: ``--seed`` means the training.
    """
    tool = ROOT / 'tools' / 'drawn_sets' / 'make_textures.py'
    folder = out / 'textures'
    if not folder.is_dir():
        subprocess.run([sys.executable, tool, folder], check=True)
    return folder


def shrink_images(source: str, target: Path, seed: int) -> Path:
    """Copy images at the size that the training needs.

    Photos of many megapixels would take longer to decode than a step takes.

    Args:
        source (str): Folder of images, at any depth.
        target (Path): Folder for up to ``MAX_IMAGES`` of them, drawn by
            chance. If all of them lie in two or more folders of ``source``,
            or of ``train`` and ``val`` in it, of at least ``MIN_CLASS``,
            these are taken for classes: their copies go into
            ``train/<class>/``, one of six into ``val/<class>/``.
        seed (int): Seed of the draw.

    Returns:
        Path: ``target``.

    Raises:
        OSError: If there is no image, or a copy cannot be written.
        ValueError: If fewer than ``MIN_IMAGES`` are readable.
    """
    from mmcv import imwrite

    from mmmoca.datasets import ImageFolder, LoadImage
    from mmmoca.datasets.functional import resize

    found = ImageFolder(source, with_label=False, pipeline=[]).data_list
    order = np.random.default_rng(seed).permutation(len(found))[:MAX_IMAGES]
    paths = [found[index]['img_path'] for index in order.tolist()]
    classes = [_class_of(Path(path).relative_to(source)) for path in paths]
    counts, seen = Counter(classes), Counter()
    labelled = len(counts) > 1 and min(counts.values()) >= MIN_CLASS
    copies = []
    for number, name in enumerate(classes):
        split = 'train' if seen[name] % 6 else 'val'
        seen[name] += 1
        folder = target / split / name if labelled else target
        copies.append(folder / f'{number:04d}.png')
    loader = LoadImage(reduce_to=SHORT_SIDE)

    def shrink(path: str, copy: Path) -> str | None:
        try:
            image = loader.read(path)
        except OSError as error:
            return str(error)
        scale = min(1, SHORT_SIDE / min(image.shape[:2]))
        size = [max(1, round(side * scale)) for side in image.shape[:2]]
        imwrite(resize(image, size), copy)
        return None

    # OpenCV and PyTorch let other threads run meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [e for e in pool.map(shrink, paths, copies) if e]
    readable = len(paths) - len(errors)
    print(f'  {readable} images of {len(found)} in {source}')
    if errors:
        print(f'  {len(errors)} left out, the first: {errors[0]}')
    if readable < MIN_IMAGES:
        raise ValueError(
            f'{source} has {readable} readable images, too few to learn '
            f'from: give a folder with at least {MIN_IMAGES}'
        )
    return target


def _class_of(path: Path) -> str:
    """The folder that may be the class of an image."""
    first, *others = path.parts
    return others[0] if others and first in ('train', 'val') else first


def earlier_checkpoints(out: Path) -> list[Path]:
    """The checkpoints that an earlier demo has left in a folder.

    Raises:
        ValueError: If there are checkpoints of another run, or damaged ones.
    """
    from mmmoca.checkpoints import read_checkpoint

    found = list(out.glob('*.pth'))
    for path in found:
        meta = read_checkpoint(path, lazy=True).get('meta') or {}
        if not str(meta.get('experiment_name')).startswith(NAME):
            raise ValueError(
                f'{path} is the checkpoint of another run, which the demo '
                'does not remove: give another --out'
            )
    return found


def demo_config(images: Path, args: argparse.Namespace) -> 'Config':
    """The demo's config for these images.

    Args:
        images (Path): With ``train/<class>/`` and ``val/<class>/``, or
            without labels.
        args (argparse.Namespace): The arguments. ``data`` tells whether the
            images are the user's.
    """
    from mmengine.config import Config

    cfg = Config.fromfile(CONFIG)
    cfg.work_dir = str(args.out)
    cfg.experiment_name = NAME
    cfg.randomness.seed = args.seed
    training = cfg.train_dataloader.dataset
    training.data_root = str(images)
    if (images / 'train').is_dir():
        cfg.val_cfg.data_root = cfg.test_cfg.data_root = str(images)
    else:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    if args.data is not None:
        training.data_prefix = ''
        own = Config.fromfile(OWN_IMAGES)
        cfg.optim_wrapper.optimizer.lr = own.optim_wrapper.optimizer.lr
        cfg.model.codebook.centre = own.model.codebook.centre
        # Colours alone would tell which views of photos belong together.
        for view in training.pipeline[2].transforms:
            view[1].transforms[0].update(saturation=0.2, hue=0.1)
            view.insert(2, dict(type='mmmoca.RandomGrayscale', prob=0.2))
    if args.iters is not None:
        cfg.train_cfg.max_iters = args.iters
        cfg.train_cfg.val_interval = max(1, args.iters // 5)
        cfg.default_hooks.checkpoint.interval = args.iters
        cfg.default_hooks.logger.interval = max(1, args.iters // 30)
    return cfg


def run(
    parser: argparse.ArgumentParser, args: argparse.Namespace, scratch: Path
) -> None:
    """Run all stages.

    Args:
        parser (argparse.ArgumentParser): To report errors by.
        args (argparse.Namespace): The arguments.
        scratch (Path): Empty folder for images that are needed meanwhile.
    """
    import torch
    from mmengine.registry import init_default_scope

    from mmmoca.engine.training import build_runner
    from mmmoca.files import write_figure, write_json
    from mmmoca.visualization.curves import draw_run
    from mmmoca.visualization.overview import draw_overview

    out = args.out
    # A model this small gains nothing from more threads.
    torch.set_num_threads(min(4, torch.get_num_threads()))
    start = time.time()
    print('1/4 images', flush=True)
    with one_line_errors(parser, OSError, ValueError):
        earlier = earlier_checkpoints(out)
        if args.data is None:
            images = draw_textures(out)
        else:
            images = shrink_images(args.data, scratch, args.seed)
    cfg = demo_config(images, args)
    init_default_scope(cfg.default_scope)
    runner = build_runner(cfg, progress=True)

    print('2/4 pretraining', flush=True)
    for path in earlier:
        path.unlink()  # the demo starts over each time
    runner.train()

    print('3/4 k-NN accuracies', flush=True)
    knn = {}
    if cfg.val_cfg is not None:
        for key, name in KNN_NAMES.items():
            found = runner.message_hub.get_scalar(f'val/knn/{key}_k20')
            knn[name] = found.current()
        runner.val_loop.which = 'student'
        knn['student'] = runner.val_loop.measure()['knn/top1_k20']

    print('4/4 pictures', flush=True)
    checkpoint = runner.message_hub.get_info('last_ckpt')
    pictures = [out / 'moca.png', out / 'curves.png']
    figure = draw_overview(cfg, checkpoint, num_workers=0, seed=args.seed)
    write_figure(pictures[0], figure)
    write_figure(pictures[1], draw_run(out))
    result = dict(knn=knn, seed=args.seed, iters=runner.max_iters)
    write_json(out / 'result.json', result)

    print(f'\n{time.time() - start:.0f} s')
    for name, accuracy in knn.items():
        print(f'k-NN, {name:10}  {accuracy:5.1f} %')
    print('Look at', *pictures, sep='\n  ')


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    parser, args = parse_args(argv)
    import_stack()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix='.images-', dir=args.out
    ) as scratch:
        run(parser, args, Path(scratch))


if __name__ == '__main__':
    main()
