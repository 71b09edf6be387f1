# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The quick start: pretrain on small images and show what was learnt."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Waiting threads that spin steal the cores from the process that loads the
# images. OpenMP reads this when PyTorch is imported.
os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import mmmoca  # noqa: F401  checks the installation before all else

# isort: split

from _demo import ProgressHook, QuietRunner, shrink_images

# isort: split

import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmpretrain.registry import DATASETS, MODELS
from rich.console import Console
from rich.table import Table
from torch import Tensor

from mmmoca.evaluation import knn_scores
from mmmoca.models import MOCA
from mmmoca.visualization import (
    Neighbours,
    draw_curves,
    draw_overview,
    extract_features,
    pick_images,
    raw_pixels,
    read_scalars,
)

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / 'configs' / 'demo' / 'moca_vit-tiny_textures.py'
SHOWN = 8
KINDS = dict(
    raw_pixels='raw pixels',
    untrained='untrained network',
    teacher='pretrained, teacher',
    student='pretrained, student',
)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Pretrain a small MOCA ViT within minutes on a CPU and '
        'draw what it learnt.'
    )
    parser.add_argument(
        '--data',
        metavar='DIR',
        help='a folder of images, at any depth and without labels (by '
        'default a set of textures is drawn)',
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


def demo_config(
    images: Path, labelled: bool, out: Path, seed: int, iters: int | None
) -> Config:
    """The demo's config for these images and this number of steps."""
    cfg = Config.fromfile(CONFIG)
    cfg.work_dir = str(out)
    cfg.randomness.seed = seed
    for loader in (
        cfg.train_dataloader,
        cfg.val_dataloader,
        cfg.bank_dataloader,
        cfg.val_cfg.bank_dataloader,
    ):
        loader.dataset.data_root = str(images)
    cfg.test_cfg = cfg.test_dataloader = cfg.test_evaluator = None
    if not labelled:
        cfg.train_dataloader.dataset.data_prefix = ''
        cfg.bank_dataloader.dataset.update(data_prefix='', with_label=False)
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
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


class Sets:
    """The images that are compared: queries and the bank they search.

    Without labels the bank is its own set of queries.

    Args:
        cfg (Config): The demo's config.
    """

    def __init__(self, cfg: Config) -> None:
        self.bank = DATASETS.build(cfg.bank_dataloader.dataset)
        self.queries, self.labels = self.bank, None
        self.knn = cfg.val_cfg
        if cfg.val_dataloader is not None:
            self.queries = DATASETS.build(cfg.val_dataloader.dataset)
        self.features: dict[str, tuple[Tensor, Tensor]] = {}

    def describe(self, model: MOCA, encoders: dict) -> None:
        """Add the features of queries and bank by some encoders."""
        # Reading draws a seed: the training must not depend on it.
        with torch.random.fork_rng():
            bank, labels = extract_features(
                self.bank, model.data_preprocessor, encoders
            )
            queries = bank
            if self.queries is not self.bank:
                queries, query_labels = extract_features(
                    self.queries, model.data_preprocessor, encoders
                )
                self.labels = query_labels, labels
        for name in encoders:
            self.features[name] = queries[name], bank[name]

    def accuracies(self) -> dict[str, float]:
        """K-NN accuracy of each encoder in percent; empty without labels."""
        if self.labels is None:
            return {}
        query_labels, labels = self.labels
        accuracies = {}
        for name, (queries, bank) in self.features.items():
            scores = knn_scores(
                queries,
                bank,
                labels,
                len(self.bank.metainfo['classes']),
                self.knn.k,
                self.knn.temperature,
            )
            hits = scores.argmax(dim=1) == query_labels
            accuracies[name] = 100 * hits.double().mean().item()
        return accuracies


def draw_pictures(
    model: MOCA, untrained: MOCA, sets: Sets, out: Path
) -> list[Path]:
    """Write ``moca.png`` and ``curves.png``."""
    labels = names = own_rows = None
    if sets.labels is None:
        picked = own_rows = pick_images(None, len(sets.queries), SHOWN)
    else:
        picked = pick_images(sets.labels[0], len(sets.queries), SHOWN)
        labels = sets.labels[0][picked], sets.labels[1]
        names = [sets.bank.metainfo['classes'][label] for label in labels[0]]
    images = torch.stack([sets.queries[index]['inputs'] for index in picked])
    accuracies = sets.accuracies()
    blocks = []
    for name, title in (('teacher', 'MOCA'), ('raw_pixels', 'raw pixels')):
        title = f'nearest images by {title}'
        if name in accuracies:
            title += f' (k-NN {accuracies[name]:.0f} %)'
        queries, bank = sets.features[name]
        blocks.append(
            Neighbours.search(
                title, sets.bank, queries[picked], bank, labels, own_rows
            )
        )
    files = [out / 'moca.png', out / 'curves.png']
    figure = draw_overview(model, untrained, images, blocks, names)
    figure.savefig(files[0], dpi=130)
    baselines = {
        KINDS[name]: accuracies[name]
        for name in ('raw_pixels', 'untrained')
        if name in accuracies
    }
    draw_curves(read_scalars(out), baselines).savefig(files[1], dpi=130)
    return files


@contextmanager
def stage(title: str, seconds: dict[str, float]) -> Iterator[None]:
    """Say what is being done, and note the seconds that it took."""
    print(f'{len(seconds) + 1}/5 {title}', flush=True)
    start = time.time()
    yield
    seconds[title] = time.time() - start


def report(result: dict, console: Console) -> None:
    """Print accuracies, times and files as a table."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify='left')
    table.add_column(justify='right')
    if result['knn']:
        table.add_row(f'[b]k-NN accuracy[/b], k = {result["k"]}', '%')
    for name, accuracy in result['knn'].items():
        table.add_row(f'  {KINDS[name]}', f'{accuracy:.1f}')
    table.add_row('[b]time[/b]', 's')
    for title, seconds in result['seconds'].items():
        table.add_row(f'  {title}', f'{seconds:.0f}')
    table.add_row('  all', f'{sum(result["seconds"].values()):.0f}')
    console.print()
    console.print(table)
    print('\nLook at', *result['pictures'], sep='\n  ')


def run(args: argparse.Namespace, out: Path, scratch: Path) -> None:
    """Run all stages.

    Args:
        args (argparse.Namespace): The arguments.
        out (Path): Where results go.
        scratch (Path): Empty folder for images that are needed meanwhile.
    """
    console = Console()
    seconds: dict[str, float] = {}
    with stage('images', seconds):
        if args.data is None:
            images = draw_textures(out)
        else:
            try:
                images = shrink_images(args.data, scratch, args.seed)
            except (OSError, ValueError) as error:
                sys.exit(f'demo.py: error: {error}')
    with stage('features before training', seconds):
        cfg = demo_config(
            images, args.data is None, out, args.seed, args.iters
        )
        init_default_scope(cfg.default_scope)
        sets = Sets(cfg)
        runner = QuietRunner.from_cfg(cfg)
        interval = 2 * cfg.default_hooks.logger.interval
        runner.register_hook(ProgressHook(console, interval))
        model = runner.model
        with torch.random.fork_rng():
            untrained = MODELS.build(cfg.model)
            untrained.init_weights()
        untrained.to(next(model.parameters()).device).eval()
        encoders = dict(
            raw_pixels=raw_pixels, untrained=untrained.extract_feat
        )
        sets.describe(model, encoders)
    with stage('pretraining', seconds):
        runner.train()
    with stage('features after training', seconds):
        model.eval()
        encoders = dict(
            teacher=model.extract_feat,
            student=lambda inputs: model.extract_feat(inputs, 'student'),
        )
        sets.describe(model, encoders)
    with stage('pictures', seconds):
        torch.manual_seed(args.seed)
        pictures = draw_pictures(model, untrained, sets, out)
    result = dict(
        knn=sets.accuracies(),
        k=sets.knn and sets.knn.k,
        temperature=sets.knn and sets.knn.temperature,
        bank_images=len(sets.bank),
        query_images=len(sets.queries),
        seed=args.seed,
        iters=runner.max_iters,
        seconds=seconds,
        pictures=[str(path) for path in pictures],
    )
    (out / 'result.json').write_text(json.dumps(result, indent=2) + '\n')
    report(result, console)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    args = parse_args(argv)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    # More threads than that only wait for each other in a model this small.
    torch.set_num_threads(min(4, torch.get_num_threads()))
    with tempfile.TemporaryDirectory(prefix='.images-', dir=out) as scratch:
        run(args, out, Path(scratch))


if __name__ == '__main__':
    main()
