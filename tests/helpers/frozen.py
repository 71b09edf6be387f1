# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A model, image folders and runs for the protocols on frozen features."""

import itertools
import os

import numpy as np
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmpretrain.models import ClsDataPreprocessor
from PIL import Image
from torch import nn

COUNT = itertools.count()
PIPELINE = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=16),
    dict(type='PackInputs'),
]


class PooledPixels(BaseModel):
    """Applies one layer to pooled pixels; trains with dropout.

    Attributes:
        log (list): ``('extract_feat', training)`` for each call.
    """

    def __init__(self):
        super().__init__(ClsDataPreprocessor([120.0] * 3, [60.0] * 3))
        self.student = nn.Linear(48, 8)
        self.teacher = nn.Linear(48, 8)
        generator = torch.Generator().manual_seed(0)
        for param in self.parameters():
            param.data.normal_(generator=generator)
        self.log = []

    def extract_feat(self, inputs, which='teacher'):
        self.log.append(('extract_feat', self.training))
        pooled = nn.functional.adaptive_avg_pool2d(inputs, 4).flatten(1)
        return getattr(self, which)(pooled)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        feats = self.extract_feat(inputs, 'student')
        loss = nn.functional.dropout(feats).square().mean()
        return dict(loss=loss + 0 * self.teacher.weight.sum())


def draw(folder, counts, seed):
    """Draw one folder of images per class; the classes' colours overlap."""
    rng = np.random.RandomState(seed)
    for label, count in enumerate(counts):
        path = folder / f'class_{label}'
        path.mkdir(parents=True)
        colour = np.random.RandomState(label).randint(60, 196, 3)
        for i in range(count):
            shift = rng.normal(0, 45, (4, 4, 3))
            small = np.clip(colour + shift, 0, 255).astype(np.uint8)
            Image.fromarray(small).resize((20, 20)).save(path / f'{i}.jpg')


def folder_loader(folder, sampler=None, **dataset):
    """Return a data loader config for a folder, with batches of four."""
    dataset = dict(data_root=str(folder), pipeline=PIPELINE) | dataset
    return dict(
        dataset=dict(type='mmmoca.ImageFolder') | dataset,
        batch_size=4,
        num_workers=0,
        sampler=dict(type='DefaultSampler', shuffle=False) | (sampler or {}),
    )


def toy_runner(model=None, **kwargs):
    """Return a runner; pass ``launcher='pytorch'`` in several processes."""
    if 'launcher' in kwargs:
        kwargs['cfg'] = dict(model_wrapper_cfg=dict(device_ids=None))
    return Runner(
        model=model or PooledPixels(),
        default_scope='mmpretrain',
        experiment_name=f'frozen_{os.getpid()}_{next(COUNT)}',
        randomness=dict(seed=3),
        **kwargs,
    )


def described(folder, which='teacher'):
    """Return a folder's paths, features (one image at a time) and labels."""
    model = PooledPixels().eval()
    dataset = Runner.build_dataloader(folder_loader(folder)).dataset
    feats = []
    for sample in map(dataset.__getitem__, range(len(dataset))):
        batch = model.data_preprocessor(dict(inputs=[sample['inputs']]))
        with torch.no_grad():
            feats.append(model.extract_feat(batch['inputs'], which)[0])
    paths = [info['img_path'] for info in dataset.load_data_list()]
    return paths, torch.stack(feats).numpy(), dataset.get_gt_labels()
