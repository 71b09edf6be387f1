# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which numbers without labels order encoders as labels do.

Measures the checkpoints of runs on held-out images, and prints the rank
correlation (Spearman) of each number with the k-NN accuracy and with a linear
probe: within each run, and across all of them, each with its last checkpoint,
raw pixels and the untrained encoder. Embeddings are [AVG]. Crops show 30 to
100 % of an image; views are those that MOCA trains on.

Example:
    python projects/rivals/without_labels.py data/textures \
        work_dirs/rivals/moca work_dirs/rivals/mae
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import mmmoca.import_mmpretrain

# isort: split
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import set_random_seed
from rich.progress import track
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import normalize
from torchvision.transforms import v2

import mmmoca
from mmmoca.apis.comparison import untrain
from mmmoca.datasets import ImageFolder
from mmmoca.evaluation import knn_search, knn_vote, rank_me, raw_pixels
from mmmoca.evaluation.report import render_table
from mmmoca.registry import DATASETS

CROPS, NEIGHBOURS, BANK, QUERIES = 4, 10, 1500, 500
Embed = Callable[[Tensor], Tensor]


def neighbours(queries: Tensor, images: Tensor, k: int) -> Tensor:
    """Whether an image is among a query's k nearest others, (N, N)."""
    sims = normalize(queries) @ normalize(images).T
    near = sims.fill_diagonal_(-2).topk(k).indices
    return torch.zeros_like(sims, dtype=torch.bool).scatter_(1, near, True)


def jaccard(first: Tensor, second: Tensor) -> float:
    """Mean Jaccard index of rows."""
    shared = (first & second).sum(1) / (first | second).sum(1)
    return shared.mean().item()


def agreement(crops: Sequence[Tensor], k: int = NEIGHBOURS) -> float:
    """Neighbours of a crop among crops, against those of another crop."""
    first, second = (neighbours(crop, crop, k) for crop in crops[:2])
    return jaccard(first, second)


def whole_agreement(crops: Tensor, whole: Tensor, k: int) -> float:
    """The same among whole images."""
    return jaccard(*(neighbours(crop, whole, k) for crop in crops[:2]))


def match(first: Tensor, second: Tensor) -> float:
    """Share of the images whose parts find each other."""
    sims = normalize(first) @ normalize(second).T
    return (sims.argmax(1) == torch.arange(len(sims))).float().mean().item()


def variance_ratio(crops: Tensor) -> float:
    """Variance of L2-normalised crops between images over that within."""
    crops = normalize(crops, dim=-1)
    mean = crops.mean(0)
    within = (crops - mean).square().sum(-1).sum(0).mean() / (len(crops) - 1)
    return (mean.var(0).sum() / within).item()


def lidar(crops: Tensor) -> float:
    """Effective rank of the linear discriminant matrix of crops.

    NaN of pixels, whose matrix takes minutes.
    """
    if crops.shape[-1] > 2048:
        return float('nan')
    mean = crops.mean(0)
    within = (crops - mean).flatten(0, 1)
    within = within.T @ within / len(within)
    centred = mean - mean.mean(0)
    between = centred.T @ centred / len(centred)
    values, vectors = torch.linalg.eigh(
        within + 1e-4 * torch.eye(len(within)).double()
    )
    root = vectors @ (vectors / values.sqrt()).T
    found = torch.linalg.eigvalsh(root @ between @ root).clamp(min=0)
    return torch.special.entr(found / found.sum()).sum().exp().item()


class Images:
    """The images that all encoders see.

    Args:
        data (Path): Folder of ``train`` and ``val``.
        size (int): Side of an image, in pixels.
        config (Path): Of a training, for its views.
    """

    def __init__(self, data: Path, size: int, config: Path) -> None:
        draw = np.random.default_rng(0)
        self.labels = []
        sets = []
        for split, number in (('train', BANK), ('val', QUERIES)):
            images = ImageFolder(
                data_root=str(data / split),
                pipeline=[dict(type='mmmoca.LoadImage')],
            )
            rows = draw.permutation(len(images))[:number]
            found = [images[row] for row in rows]
            sets.append([one['img'][..., ::-1].copy() for one in found])
            self.labels.append(np.array([one['gt_label'] for one in found]))
        resize = v2.Compose([v2.Resize(size), v2.CenterCrop(size)])
        crop = v2.Compose(
            [
                v2.RandomResizedCrop(size, (0.3, 1.0)),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(brightness=0.4),
            ]
        )
        torch.manual_seed(0)
        self.bank, self.whole = (self.each(resize, part) for part in sets)
        self.crops = [self.each(crop, sets[1]) for _ in range(CROPS)]
        cfg = Config.fromfile(config, import_custom_modules=False)
        view = cfg.train_dataloader.dataset
        view.update(data_root=str(data / 'val'), data_prefix='')
        view = DATASETS.build(view)
        set_random_seed(0)
        pairs = [view[row]['inputs'] for row in rows]
        self.views = [torch.stack(part).flip(1) for part in zip(*pairs)]
        half = size // 2
        self.halves = [
            v2.functional.resize(part, [size, size])
            for part in self.whole.split(half, dim=3)
        ]

    @staticmethod
    def each(transform: Callable, images: list) -> Tensor:
        """Transform images, (H, W, 3), to (N, 3, H, W)."""
        planes = (torch.from_numpy(one).permute(2, 0, 1) for one in images)
        return torch.stack([transform(plane) for plane in planes])

    def measure(self, embed: Embed) -> dict[str, float]:
        """Measure an encoder."""
        bank, whole, *crops = (
            embed(part).double()
            for part in (self.bank, self.whole, *self.crops)
        )
        crops = torch.stack(crops)
        known, asked = (torch.from_numpy(x) for x in self.labels)
        sims, near = knn_search(normalize(whole), normalize(bank), 20)
        votes = knn_vote(sims, known[near], int(known.max()) + 1, 0.07)
        probe = make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=300)
        ).fit(bank, known)
        return {
            'k-NN': (votes.argmax(1) == asked).double().mean().item(),
            'linear': probe.score(whole, asked),
            'RankMe': rank_me(whole),
            'LiDAR': lidar(crops),
            'matching halves': match(*map(embed, self.halves)),
            'matching crops': match(*crops[:2]),
            'variance ratio': variance_ratio(crops),
            'agreement': agreement(crops),
            'agreement, k=5': agreement(crops, 5),
            'agreement, k=20': agreement(crops, 20),
            'agreement, views': agreement([*map(embed, self.views)]),
            'agreement, whole': whole_agreement(crops, whole, NEIGHBOURS),
        }


def embedder(name: str, file: Path) -> Embed:
    """Embed uint8 images -> (N, D), by pixels or by a checkpoint."""
    if name == 'raw pixels':
        return lambda images: raw_pixels(images.float())
    encoder = mmmoca.load(file)
    if name == 'untrained':
        untrain(encoder)
    settings = encoder.preprocessing
    mean, std = (
        torch.tensor(numbers)[:, None, None]
        for numbers in (settings.mean, settings.std)
    )
    return lambda images: encoder.embed((images - mean) / std).avg


def step_of(file: Path) -> int:
    """The number of ``iter_N.pth`` or ``epoch_N.pth``."""
    return int(file.stem.rpartition('_')[2])


def correlate(rows: Sequence[dict]) -> dict[str, tuple[float, float]]:
    """Spearman's correlation of each number with both accuracies."""
    return {
        name: tuple(
            spearmanr([r[name] for r in rows], [r[label] for r in rows])[0]
            for label in ('k-NN', 'linear')
        )
        for name in rows[0]
        if name not in ('k-NN', 'linear')
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('data', type=Path, help='folder of train and val')
    add('runs', type=Path, nargs='+', help='folders of checkpoints')
    add('--size', type=int, default=48, help='of images, in pixels (48)')
    config = Path(__file__).parent / 'configs' / 'moca_vit-tiny_textures.py'
    add('--config', type=Path, default=config, help='whose views are taken')
    add('--json', type=Path, help='keep measurements there, and go on from it')
    args = parser.parse_args()
    kept = {}
    if args.json and args.json.is_file():
        kept = json.loads(args.json.read_text())
    init_default_scope('mmpretrain')
    images = Images(args.data, args.size, args.config)
    runs = {
        run.name: sorted(
            [*run.glob('iter_*.pth'), *run.glob('epoch_*.pth')], key=step_of
        )
        for run in args.runs
    }
    files = [file for run in runs.values() for file in run]
    asked = dict.fromkeys(('raw pixels', 'untrained'), files[0])
    asked |= {str(file): file for file in files}
    for name, file in track(asked.items(), 'checkpoints'):
        key = f'{args.data} {name}'
        if key not in kept:
            kept[key] = images.measure(embedder(name, file))
            if args.json:
                args.json.write_text(json.dumps(kept, indent=1))
    found = {name: kept[f'{args.data} {name}'] for name in asked}
    groups = {
        name: [found[str(file)] for file in files]
        for name, files in runs.items()
    }
    last = [rows[-1] for rows in groups.values()]
    for name in ('raw pixels', 'untrained'):
        groups[name] = [found[name]]
    groups['across'] = [found['raw pixels'], found['untrained'], *last]
    names = [*found['raw pixels']]
    print(
        render_table(
            ['first → last', *names],
            [
                [
                    name,
                    *(f'{rows[0][n]:.3g} → {rows[-1][n]:.3g}' for n in names),
                ]
                for name, rows in groups.items()
                if name != 'across'
            ],
        )
    )
    numbers = names[2:]
    print(
        render_table(
            ['correlation with k-NN / linear', *numbers],
            [
                [name, *('{:+.2f} / {:+.2f}'.format(*c[n]) for n in numbers)]
                for name, rows in groups.items()
                if len(rows) > 2 and (c := correlate(rows))
            ],
        )
    )


if __name__ == '__main__':
    main()
