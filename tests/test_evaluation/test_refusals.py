# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Errors of protocols and lists of images name what is wrong."""

import re

import pytest
import torch

from mmmoca.evaluation import KNNAccuracy, knn_predictions, knn_search
from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.presets import choose_preset
from mmmoca.evaluation.protocols.in_context import PatchBank, label_shares
from mmmoca.evaluation.protocols.knn import knn_settings
from mmmoca.evaluation.subsets import draw_subset, read_subset

MISSING = FileNotFoundError
IMAGES = {name: [f'{name}_{i}.png' for i in range(7)] for name in ('a', 'cat')}


def search(root, **change):
    arguments = dict(query=torch.eye(4), bank=torch.eye(4), k=3)
    knn_search(**arguments | change)


def settings(root, **change):
    knn_settings(**dict(k=20, temperature=0.07) | change)


def bank(root, *labels):
    shard = FeatureShard(torch.arange(3), torch.eye(3), torch.tensor(labels))
    next(knn_predictions(shard, shard, knn_settings(1, 0.07)))


def other_features(root):
    ids = labels = torch.arange(3)
    shards = [FeatureShard(ids, torch.eye(3, n), labels) for n in (3, 4)]
    next(knn_predictions(*shards, knn_settings(1, 0.07)))


def lines(root, text):
    for name in ('a/0.jpg', 'a/1.jpg', 'b/0.jpg'):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    (root / 'bad.txt').write_text(text)
    read_subset(str(root / 'bad.txt'), str(root), ('a', 'b'))


def draw(root, **options):
    draw_subset(**dict(images=IMAGES, seed=(0, 0)) | options)


def patches(root):
    maps, masks = torch.ones(1, 6, 3, 4), torch.full((1, 6, 12), 255)
    PatchBank([([0], maps, masks)], 4, 8, 1)


REFUSED = [
    (search, (), dict(k=0), ValueError, 'k'),
    (search, (), dict(chunk_size=0), ValueError, 'chunk_size'),
    (search, (), dict(bank=torch.empty(0, 4)), ValueError, 'bank'),
    (settings, (), dict(k=()), ValueError, 'k='),
    (settings, (), dict(k=(1, 2.5)), ValueError, 'k='),
    (settings, (), dict(temperature=(0.07, 0)), ValueError, 'temperature='),
    (bank, (1, 1, 1), {}, ValueError, 'class'),
    (bank, (-1, 0, 1), {}, ValueError, 'class'),
    (other_features, (), {}, ValueError, 'alike'),
    (lines, ('',), {}, ValueError, 'bad.txt'),
    (lines, ('a/0.jpg\nb/77.jpg\nb/78.jpg',), {}, MISSING, 'b/77'),
    (lines, ('a/0.jpg\nother/0.jpg',), {}, ValueError, 'other/'),
    (lines, ('a_b_0.jpg\nc_0.jpg',), {}, ValueError, 'c/c_0'),
    (lines, ('a/0.jpg\nb/0.jpg\na/0.jpg',), {}, ValueError, 'bad.txt'),
    (draw, (), dict(shots=1, percent=1), ValueError, 'shots'),
    (draw, (), dict(shots=0), ValueError, 'shots'),
    (draw, (), dict(percent=101), ValueError, 'percent'),
    (draw, (), dict(percent=float('nan')), ValueError, 'percent'),
    (draw, (), dict(shots=8), ValueError, '8'),
    (draw, (), dict(shots=1, images=dict(a=['a_1'])), ValueError, 'class'),
    (patches, (), {}, ValueError, 'label'),
    (lambda root: label_shares(torch.zeros(1, 6, 12), (4, 4), 4), (), {},
     ValueError, 'masks'),
    (lambda root: KNNAccuracy().process(None, [dict(pred_score=0)]), (), {},
     ValueError, 'KNNValLoop'),
    (lambda root: choose_preset('msn', 'dense'), (), {}, ValueError, 'dense'),
]  # fmt: skip


@pytest.mark.parametrize(
    ('build', 'arguments', 'options', 'error', 'named'), REFUSED
)
def test_refused(tmp_path, build, arguments, options, error, named):
    with pytest.raises(error, match=re.escape(named)):
        build(tmp_path, *arguments, **options)
