# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of benchmark_data.py: four pipelines, measured in turns."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import cv2
import numpy as np
import torch
import torchvision.transforms as T
from mmengine import Config
from mmengine.registry import init_default_scope
from mmpretrain.registry import MODELS, TRANSFORMS
from PIL import Image, ImageFilter, ImageOps
from rich.progress import track
from rich.table import Table

from mmmoca.datasets import ImageFolder

CONFIG = (
    Path(__file__).parents[2] / 'configs/_base_/datasets/imagenet_two-views.py'
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Pipeline = Callable[[str], object]


class PILBlur:
    """The paper's ``GaussianBlur(p, 0.1, 2.0)``."""

    def __init__(self, prob: float) -> None:
        self.prob = prob

    def __call__(self, img: Image.Image) -> Image.Image:
        """Perhaps blur."""
        if np.random.rand() >= self.prob:
            return img
        radius = np.random.uniform(0.1, 2.0)
        return img.filter(ImageFilter.GaussianBlur(radius))


def paper_pipeline() -> Pipeline:
    """The paper's listing, on PIL images."""

    def view(blur: float, solarize: float) -> T.Compose:
        return T.Compose(
            [
                T.RandomResizedCrop(224, scale=(0.2, 1.0)),
                T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
                T.RandomGrayscale(p=0.2),
                PILBlur(blur),
                T.RandomApply([T.Lambda(ImageOps.solarize)], p=solarize),
                T.RandomHorizontalFlip(),
                T.ToTensor(),
                T.Normalize(MEAN, STD),
            ]
        )

    views = view(1.0, 0.0), view(0.1, 0.2)

    def run(path: str) -> list[torch.Tensor]:
        with Image.open(path) as img:
            img = img.convert('RGB')
        return [view(img) for view in views]

    return run


def mm_pipeline(transforms: Iterable[dict]) -> Pipeline:
    """A pipeline of configs."""
    built = [TRANSFORMS.build(transform) for transform in transforms]

    def run(path: str) -> dict:
        results = {'img_path': path, 'sample_idx': 0}
        for transform in built:
            results = transform(results)
        return results

    return run


def stock_pipeline(backend: str) -> Pipeline:
    """The paper's recipe from MMPreTrain's own transforms.

    Args:
        backend (str): ``'pillow'`` or ``'cv2'``.
    """

    def view(blur: float, solarize: float) -> list[dict]:
        jitter = dict(
            type='ColorJitter',
            brightness=0.4,
            contrast=0.4,
            saturation=0.2,
            hue=0.1,
            backend=backend,
        )
        return [
            dict(
                type='RandomResizedCrop',
                scale=224,
                crop_ratio_range=(0.2, 1.0),
                backend=backend,
            ),
            dict(type='RandomApply', transforms=[jitter], prob=0.8),
            dict(
                type='RandomGrayscale',
                prob=0.2,
                keep_channels=True,
                channel_weights=(0.114, 0.587, 0.2989),
            ),
            dict(
                type='GaussianBlur',
                magnitude_range=(0.1, 2.0),
                magnitude_std='inf',
                prob=blur,
            ),
            dict(type='Solarize', thr=128, prob=solarize),
            dict(type='RandomFlip', prob=0.5),
        ]

    views = [view(1.0, 0.0), view(0.1, 0.2)]
    return mm_pipeline(
        [
            dict(type='LoadImageFromFile', imdecode_backend=backend),
            dict(type='MultiView', transforms=views, num_views=[1, 1]),
            dict(type='PackInputs'),
        ]
    )


def normalised(pipeline: Pipeline) -> Pipeline:
    """A pipeline followed by MMPreTrain's preprocessor, on the CPU."""
    preprocessor = MODELS.build(
        dict(
            type='SelfSupDataPreprocessor',
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            to_rgb=True,
        )
    )

    def run(path: str) -> dict:
        packed = pipeline(path)
        views = [view[None] for view in packed['inputs']]
        return preprocessor(dict(inputs=views, data_samples=[]))

    return run


def draw_photo(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Draw something with the spectrum and the edges of a photograph.

    Args:
        rng (np.random.Generator): Source of randomness.
        size (tuple[int, int]): Height and width in pixels.

    Returns:
        np.ndarray: Image (H, W, 3), BGR, uint8.
    """
    height, width = size
    img = np.full((height, width, 3), 120, dtype=np.float32)
    for cells, contrast in ((4, 70), (12, 45), (40, 28), (110, 16)):
        noise = rng.standard_normal((cells, cells, 3), dtype=np.float32)
        noise = 0.6 * noise.mean(axis=2, keepdims=True) + 0.4 * noise
        img += contrast * cv2.resize(
            noise, (width, height), interpolation=cv2.INTER_CUBIC
        )
    for _ in range(14):
        corners = rng.random((rng.integers(3, 7), 2)) * (width, height)
        shape = img.copy()
        cv2.fillPoly(
            shape,
            [cv2.convexHull(corners.astype(np.int32))],
            rng.uniform(0, 255, 3).tolist(),
            lineType=cv2.LINE_AA,
        )
        img = cv2.addWeighted(img, 0.45, shape, 0.55, 0)
    img += rng.normal(0, 6, (height, width, 1))
    img += rng.normal(0, 3, (height, width, 3))
    return np.clip(img, 0, 255).astype(np.uint8)


def measure(
    pipelines: dict[str, Pipeline], paths: list[str], repeats: int
) -> dict[str, float]:
    """Run the pipelines in turns.

    Args:
        pipelines (dict): Name to pipeline.
        paths (list[str]): Image files.
        repeats (int): Turns of each pipeline, one pass over the files each.

    Returns:
        dict[str, float]: Name to images per second of processor time, the
        median over the turns.
    """
    for run in pipelines.values():
        run(paths[0])
    rates = {name: [] for name in pipelines}
    for _ in track(range(repeats), 'Measuring'):
        for name, run in pipelines.items():
            start = time.process_time()
            for path in paths:
                run(path)
            seconds = time.process_time() - start
            rates[name].append(len(paths) / seconds)
    return {name: statistics.median(rate) for name, rate in rates.items()}


def benchmark(args: argparse.Namespace) -> Table:
    """Measure all pipelines.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        Table: A row for each.
    """
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    np.random.seed(0)
    torch.manual_seed(0)
    init_default_scope('mmpretrain')

    ours = mm_pipeline(Config.fromfile(CONFIG).train_pipeline)
    pipelines = {
        'paper: torchvision, PIL': paper_pipeline(),
        'MMPreTrain, pillow': stock_pipeline('pillow'),
        'MMPreTrain, cv2': stock_pipeline('cv2'),
        'ours': ours,
        'ours, normalised on the CPU': normalised(ours),
    }
    with tempfile.TemporaryDirectory() as drawn:
        if args.data is None:
            for i in range(args.number):
                photo = draw_photo(np.random.default_rng(i), args.size)
                path = f'{drawn}/{i}.jpg'
                cv2.imwrite(path, photo, [cv2.IMWRITE_JPEG_QUALITY, 90])
        folder = ImageFolder(args.data or drawn, with_label=False)
        picked = np.linspace(0, len(folder) - 1, args.number).astype(int)
        paths = [
            folder.get_data_info(i)['img_path'] for i in np.unique(picked)
        ]
        size = statistics.mean(Path(path).stat().st_size for path in paths)
        rates = measure(pipelines, paths, args.repeats)

    table = Table(
        title=f'{len(paths)} images, {size / 1000:.0f} kB each on average; '
        f'median of {args.repeats} turns'
    )
    table.add_column('pipeline')
    table.add_column('images/s a core', justify='right')
    table.add_column('ratio', justify='right')
    reference = rates['paper: torchvision, PIL']
    for name, rate in rates.items():
        table.add_row(name, f'{rate:.0f}', f'{rate / reference:.2f}')
    return table
