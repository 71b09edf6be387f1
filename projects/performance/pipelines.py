# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pipelines of two views, measured in turns."""

import copy
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
import torchvision.transforms as T
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import init_default_scope
from mmpretrain.registry import MODELS
from PIL import Image, ImageFilter, ImageOps

from measure import median_seconds, print_table
from mmmoca.datasets import ImageFolder

CONFIG = (
    Path(__file__).parents[2] / 'configs/_base_/datasets/imagenet_two-views.py'
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Pipeline = Callable[[str], object]


def blur(img: Image.Image) -> Image.Image:
    """The paper's ``GaussianBlur(p, 0.1, 2.0)`` where it is applied."""
    radius = np.random.uniform(0.1, 2.0)
    return img.filter(ImageFilter.GaussianBlur(radius))


def paper_pipeline() -> Pipeline:
    """The paper's listing, on PIL images."""

    def view(blurred: float, solarized: float) -> T.Compose:
        return T.Compose(
            [
                T.RandomResizedCrop(224, scale=(0.2, 1.0)),
                T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
                T.RandomGrayscale(p=0.2),
                T.RandomApply([T.Lambda(blur)], p=blurred),
                T.RandomApply([T.Lambda(ImageOps.solarize)], p=solarized),
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


def mm_pipeline(transforms: list[dict]) -> Pipeline:
    """A pipeline of configs."""
    compose = Compose(transforms)
    return lambda path: compose(dict(img_path=path, sample_idx=0))


def stock_pipeline(ours: list[dict], backend: str) -> Pipeline:
    """Our recipe from MMPreTrain's own transforms, by 'pillow' or 'cv2'."""
    multi_view, pack = copy.deepcopy(ours[-2:])
    for view in multi_view.transforms:
        jitter = view[1].transforms[0]
        for transform in (jitter, *view):
            transform.type = transform.type.removeprefix('mmmoca.')
            if transform.type in ('RandomResizedCrop', 'ColorJitter'):
                transform.backend = backend
            elif transform.type == 'RandomGrayscale':
                # The weights of PIL, in the order of BGR.
                weights = 0.114, 0.587, 0.2989
                transform.update(keep_channels=True, channel_weights=weights)
    load = dict(type='LoadImageFromFile', imdecode_backend=backend)
    return mm_pipeline([load, multi_view, pack])


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


def draw_photos(folder: str, number: int, size: tuple[int, int]) -> None:
    """Write JPEG files with the spectrum and edges of photos, (H, W)."""
    height, width = size
    for index in range(number):
        rng = np.random.default_rng(index)
        img = np.full((height, width, 3), 120, dtype=np.float32)
        for cells, contrast in ((4, 70), (12, 45), (40, 28), (110, 16)):
            noise = rng.standard_normal((cells, cells, 3), dtype=np.float32)
            noise = 0.6 * noise.mean(axis=2, keepdims=True) + 0.4 * noise
            img += contrast * cv2.resize(
                noise, (width, height), interpolation=cv2.INTER_CUBIC
            )
        for _ in range(14):
            corners = rng.random((rng.integers(3, 7), 2)) * (width, height)
            hull = cv2.convexHull(corners.astype(np.int32))
            color = rng.uniform(0, 255, 3).tolist()
            shape = cv2.fillPoly(
                img.copy(), [hull], color, lineType=cv2.LINE_AA
            )
            img = cv2.addWeighted(img, 0.45, shape, 0.55, 0)
        img += rng.normal(0, 6, (height, width, 1))
        img += rng.normal(0, 3, (height, width, 3))
        img = np.clip(img, 0, 255).astype(np.uint8)
        path = f'{folder}/{index}.jpg'
        cv2.imwrite(path, img, [cv2.IMWRITE_JPEG_QUALITY, 90])


def benchmark(args: Namespace) -> None:
    """Measure all pipelines as the arguments of data.py say."""
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    np.random.seed(0)
    torch.manual_seed(0)
    init_default_scope('mmpretrain')

    recipe = Config.fromfile(CONFIG).train_pipeline
    ours = mm_pipeline(recipe)
    pipelines = {
        'paper: torchvision, PIL': paper_pipeline(),
        'MMPreTrain, pillow': stock_pipeline(recipe, 'pillow'),
        'MMPreTrain, cv2': stock_pipeline(recipe, 'cv2'),
        'ours': ours,
        'ours, normalised on the CPU': normalised(ours),
    }

    def run_all(pipeline: Pipeline, paths: list[str]) -> None:
        for path in paths:
            pipeline(path)

    with tempfile.TemporaryDirectory() as drawn:
        if args.data is None:
            draw_photos(drawn, args.number, args.size)
        folder = ImageFolder(args.data or drawn, with_label=False)
        picked = np.linspace(0, len(folder) - 1, args.number).astype(int)
        paths = [
            folder.get_data_info(i)['img_path'] for i in np.unique(picked)
        ]
        size = statistics.mean(Path(path).stat().st_size for path in paths)
        forms = {k: partial(run_all, v, paths) for k, v in pipelines.items()}
        seconds = median_seconds(forms, args.repeats, time.process_time)

    reference = seconds['paper: torchvision, PIL']
    print_table(
        f'{len(paths)} images, {size / 1000:.0f} kB each on average; median '
        f'of {args.repeats} turns',
        ('pipeline', 'images/s a core', 'ratio'),
        (
            (name, f'{len(paths) / value:.0f}', f'{reference / value:.2f}')
            for name, value in seconds.items()
        ),
    )
