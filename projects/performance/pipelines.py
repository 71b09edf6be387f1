# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Two-view input pipelines: the paper's, and those of mmmoca's configs."""

import shutil
import sys
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

from mmmoca.datasets.seeding import SeededIndex

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

import projects.gpu_views.canvas  # noqa: E402, F401  registers PackCanvas

CONFIGS = {
    'ours': ROOT / 'configs/_base_/datasets/imagenet_two-views.py',
    'whole images, for views on the GPU': ROOT
    / 'projects/gpu_views/configs/moca_vit-b16_200e_gpu-views.py',
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def blur(img: Image.Image) -> Image.Image:
    """Blur as the paper's ``GaussianBlur(p, 0.1, 2.0)`` does."""
    radius = np.random.uniform(0.1, 2.0)
    return img.filter(ImageFilter.GaussianBlur(radius))


def paper_view(blurred: float, solarized: float) -> T.Compose:
    """Build the transform of a view, as in the paper's listing.

    Args:
        blurred (float): Probability of blur.
        solarized (float): Probability of solarisation.
    """
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


PAPER = paper_view(1.0, 0.0), paper_view(0.1, 0.2)


def paper_pipeline(path: str) -> list[torch.Tensor]:
    """Make the two views of the paper's listing, with PIL images."""
    with Image.open(path) as img:
        img = img.convert('RGB')
    return [view(img) for view in PAPER]


def write_photos(folder: str, number: int) -> None:
    """Write scikit-learn's two photographs as JPEG files of 500 x 375 pixels.

    They are copied until there are ``number`` files.
    """
    photos = load_sample_images().images
    for index, photo in enumerate(photos[:number]):
        image = Image.fromarray(photo).resize((500, 375))
        image.save(f'{folder}/{index}.jpg', quality=90)
    for index in range(len(photos), number):
        original = f'{folder}/{index % len(photos)}.jpg'
        shutil.copyfile(original, f'{folder}/{index}.jpg')


def all_pipelines() -> dict[str, Callable[[str], object]]:
    """Build the pipelines to compare, the paper's first."""
    init_default_scope('mmpretrain')
    pipelines = {'paper: torchvision, PIL': paper_pipeline}
    for name, config in CONFIGS.items():
        compose = Compose(Config.fromfile(config).train_pipeline)
        pipelines[name] = lambda path, compose=compose: compose(
            dict(img_path=path, sample_idx=SeededIndex(0, 0))
        )
    return pipelines
