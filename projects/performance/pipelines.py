# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pipelines of two views, from the file on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torchvision.transforms as T
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import init_default_scope
from PIL import Image, ImageFilter, ImageOps
from sklearn.datasets import load_sample_images

import projects.gpu_views.canvas  # noqa: F401  registers PackCanvas

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / 'configs'
GPU_VIEWS = ROOT / 'projects/gpu_views/configs/moca_vit-b16_200e_gpu-views.py'
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


def write_photos(folder: str, number: int, size: tuple[int, int]) -> None:
    """Write scikit-learn's two photographs as JPEG files of (H, W)."""
    photos = load_sample_images().images
    for index in range(number):
        photo = Image.fromarray(photos[index % len(photos)])
        photo.resize(size[::-1]).save(f'{folder}/{index}.jpg', quality=90)


def all_pipelines() -> dict[str, Pipeline]:
    """What is compared, the paper's first."""
    init_default_scope('mmpretrain')
    config = CONFIGS / '_base_/datasets/imagenet_two-views.py'
    recipe = Config.fromfile(config).train_pipeline
    whole = Config.fromfile(GPU_VIEWS).train_pipeline
    return {
        'paper: torchvision, PIL': paper_pipeline(),
        'ours': mm_pipeline(recipe),
        'whole images, for views on the GPU': mm_pipeline(whole),
    }
