# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MMPreTrain's FeatureExtractor on real configs and a checkpoint."""

import torch
from mmengine.config import Config
from mmpretrain import FeatureExtractor

import mmmoca.hub

from ..helpers.encoders import ARCH, write_run
from ..helpers.images import CONFIGS


def test_features_of_an_image(root, tmp_path):
    """Those of mmmoca.load, which test_encoder compares with others'."""
    path, image = str(tmp_path / 'run.pth'), str(root / 'val/class_0/0.jpg')
    pretraining, _ = write_run(path)
    knn = Config.fromfile(CONFIGS / 'demo/knn_vit-tiny_textures.py')
    knn.model.backbone.arch = ARCH
    extract = FeatureExtractor(pretraining, path)
    # mmpretrain's classifiers have several stages.
    ((frozen,),) = FeatureExtractor(knn, f'mmmoca-student://{path}')(image)
    for feature, which in (
        (extract(image)[0], 'teacher'),
        (extract(image, which='student')[0], 'student'),
        (frozen, 'student'),
    ):
        expected = mmmoca.load(path, which, 'cpu').embed(image).avg[0]
        torch.testing.assert_close(feature, expected, atol=1e-5, rtol=1e-4)
