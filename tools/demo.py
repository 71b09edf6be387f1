# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The quick start: pretrain on small images and show what was learnt."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from _arguments import image_folder, import_stack

if TYPE_CHECKING:
    from mmengine.config import Config

# Waiting threads that spin steal the cores from the process that loads the
# images. OpenMP reads this when PyTorch is imported.
os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / 'configs' / 'demo' / 'moca_vit-tiny_textures.py'
# MMEngine writes it into checkpoints, followed by the time of the start.
NAME = f'{CONFIG.stem}_demo'


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Pretrain a small MOCA ViT within minutes on a CPU and '
        'draw what it learnt.'
    )
    parser.add_argument(
        '--data',
        type=image_folder,
        metavar='DIR',
        help='a folder of images, at any depth; where they lie in folders of '
        'classes, k-NN accuracy is measured (by default a set of textures is '
        'drawn)',
    )
    parser.add_argument(
        '--out',
        metavar='DIR',
        help='where results go (by default work_dirs/demo, followed by the '
        "name of the --data folder if there's one)",
    )
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument(
        '--iters', type=int, help="training steps (by default the config's)"
    )
    args = parser.parse_args(argv)
    if args.iters is not None and args.iters < 2:
        parser.error(f'--iters must be at least 2, got {args.iters}')
    if args.out is None:
        args.out = 'work_dirs/demo'
        if args.data:
            args.out += f'_{Path(args.data).resolve().name}'
    return args


def draw_textures(out: Path) -> Path:
    """Draw the texture set under ``out`` unless it is there.

    Its own seed is fixed: ``--seed`` means the training.
    """
    folder = out / 'textures'
    if not (folder / 'meta.json').is_file():
        tool = ROOT / 'tools' / 'dataset_converters' / 'make_textures.py'
        subprocess.run([sys.executable, tool, folder], check=True)
    return folder


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


def demo_config(
    images: Path, own: bool, out: Path, seed: int, iters: int | None
) -> 'Config':
    """The demo's config for these images and this number of steps.

    Args:
        images (Path): With ``train/<class>/`` and ``val/<class>/``, or
            without labels.
        own (bool): Whether they are the user's.
        out (Path): Where the run writes.
        seed (int): Of the run.
        iters (int | None): Steps, if not the config's.
    """
    from mmengine.config import Config

    cfg = Config.fromfile(CONFIG)
    cfg.work_dir = str(out)
    cfg.experiment_name = NAME
    cfg.randomness.seed = seed
    for loader in (
        cfg.train_dataloader,
        cfg.val_dataloader,
        cfg.bank_dataloader,
        cfg.val_cfg.bank_dataloader,
        cfg.test_dataloader,
        cfg.test_cfg.bank_dataloader,
    ):
        loader.dataset.data_root = str(images)
    if not (images / 'train').is_dir():
        cfg.bank_dataloader.dataset.update(data_prefix='', with_label=False)
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    if own:
        cfg.train_dataloader.dataset.data_prefix = ''
        # Photos have colours, which would give the views away.
        views = next(
            transform.transforms
            for transform in cfg.train_dataloader.dataset.pipeline
            if transform.type == 'MultiView'
        )
        for view in views:
            jitter = next(t for t in view if t.type == 'RandomApply')
            jitter.transforms[0].update(saturation=0.2, hue=0.1)
            grey = dict(type='mmmoca.RandomGrayscale', prob=0.2)
            view.insert(view.index(jitter) + 1, grey)
    if iters is not None:
        cfg.train_cfg.max_iters = iters
        cfg.train_cfg.val_interval = max(1, iters // 5)
        cfg.default_hooks.checkpoint.interval = iters
        cfg.default_hooks.logger.interval = max(1, iters // 30)
    return cfg


def run(args: argparse.Namespace, out: Path, scratch: Path) -> None:
    """Run all stages.

    Args:
        args (argparse.Namespace): The arguments.
        out (Path): Where results go.
        scratch (Path): Empty folder for images that are needed meanwhile.
    """
    import_stack()
    import torch
    from mmengine.registry import MODELS, init_default_scope

    from _demo import accuracies, shrink_images
    from mmmoca.engine.launch import build_runner
    from mmmoca.evaluation import raw_pixels
    from mmmoca.files import write_figure, write_json
    from mmmoca.visualization import draw_curves, read_scalars
    from mmmoca.visualization.checkpoint_overview import draw_checkpoint

    # More threads than that only wait for each other in a model this small.
    torch.set_num_threads(min(4, torch.get_num_threads()))
    start = time.time()
    print('1/4 images', flush=True)
    try:
        earlier = earlier_checkpoints(out)
        if args.data is None:
            images = draw_textures(out)
        else:
            images = shrink_images(args.data, scratch, args.seed)
    except (OSError, ValueError) as error:
        sys.exit(f'demo.py: error: {error}')
    own = args.data is not None
    cfg = demo_config(images, own, out, args.seed, args.iters)
    init_default_scope(cfg.default_scope)
    runner = build_runner(cfg, progress=True)
    model = runner.model
    with torch.random.fork_rng():
        untrained = MODELS.build(cfg.model)
        untrained.init_weights()
    untrained.to(next(model.parameters()).device).eval()

    print('2/4 pretraining', flush=True)
    for path in earlier:
        path.unlink()  # the demo starts over each time
    runner.train()
    model.eval()

    print('3/4 k-NN accuracies', flush=True)
    knn = accuracies(
        cfg,
        model.data_preprocessor,
        {
            'raw pixels': raw_pixels,
            'untrained': untrained.extract_feat,
            'teacher': model.extract_feat,
            'student': lambda inputs: model.extract_feat(inputs, 'student'),
        },
    )
    baselines = {k: knn[k] for k in ('raw pixels', 'untrained') if k in knn}

    print('4/4 pictures', flush=True)
    checkpoint = runner.message_hub.get_info('last_ckpt')
    pictures = [out / 'moca.png', out / 'curves.png']
    figure = draw_checkpoint(cfg, checkpoint, num_workers=0, seed=args.seed)
    write_figure(pictures[0], figure)
    write_figure(pictures[1], draw_curves(read_scalars(out), baselines))
    result = dict(knn=knn, seed=args.seed, iters=runner.max_iters)
    write_json(out / 'result.json', result)

    print(f'\n{time.time() - start:.0f} s')
    for name, accuracy in knn.items():
        print(f'k-NN, {name:10}  {accuracy:5.1f} %')
    print('Look at', *pictures, sep='\n  ')


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    args = parse_args(argv)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='.images-', dir=out) as scratch:
        run(args, out, Path(scratch))


if __name__ == '__main__':
    main()
