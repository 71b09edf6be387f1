# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The picture of what a model learned."""

import pytest
import torch
from matplotlib.image import AxesImage
from matplotlib.text import Text
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmmoca.checkpoints import run_record
from mmmoca.engine.config import read_run
from mmmoca.visualization.gallery import pick_images
from mmmoca.visualization.overview import draw_overview

from ..helpers.images import (
    CONFIGS,
    DEMO_CONFIG,
    point_to,
    write_images,
)
from ..helpers.runs import demo_model


@pytest.mark.slow
def test_overview_of_a_checkpoint(tmp_path):
    """The overview names files, images and checkpoint, and has all classes.

    A recipe chose the number of words, so it is read from the checkpoint.
    """
    write_images(tmp_path, train=4, val=3, classes=2)
    torch.save(dict(state_dict=demo_model().state_dict()), tmp_path / 'a.pth')
    cfg = Config.fromfile(DEMO_CONFIG)
    point_to(cfg, tmp_path)
    cfg.model.codebook.update(num_words='auto', num_new_words='auto')
    given = cfg, str(tmp_path / 'a.pth'), None, 6, 7, 0
    figure = draw_overview(*given)
    texts = [text.get_text() for text in figure.findobj(Text)]
    rows = [text.split('\n')[0] for text in texts if '.jpg' in text]
    assert rows == ['class_0'] * 3 + ['class_1'] * 3
    assert 'masks' not in texts
    assert any('a.pth' in text and f'{tmp_path}/val' in text for text in texts)
    legend = f' 7 random images of {tmp_path}/train'
    assert any(legend in text for text in texts)
    framed = sum((list(axes.patches) for axes in figure.axes), [])
    assert len(framed) == 60
    for path in (tmp_path / 'val').glob('*/[01].jpg'):
        path.write_text('none')
    texts = [t.get_text() for t in draw_overview(*given).findobj(Text)]
    assert sum('.jpg' in text for text in texts) == 2


@pytest.mark.slow
def test_images_larger_than_those_of_the_run(tmp_path):
    """Positions and the centre of the codebook are resized."""
    write_images(tmp_path, train=4, val=1, classes=1)
    config = CONFIGS / 'demo' / 'moca_vit-tiny_own-images.py'
    own = dict(data_root=str(tmp_path))
    init_default_scope('mmpretrain')
    model = MODELS.build(read_run(config, own).model)
    record = dict(mmmoca=run_record({}, model))
    content = dict(state_dict=model.state_dict(), meta=record)
    torch.save(content, tmp_path / 'a.pth')
    cfg = read_run(config, own | dict(img_size=96))
    figure = draw_overview(cfg, str(tmp_path / 'a.pth'), None, 3)
    shapes = {image.get_array().shape for image in figure.findobj(AxesImage)}
    assert (96, 96, 3) in shapes


def test_images_of_different_classes():
    labels = [0] * 50 + [3] * 3 + [1] * 47
    picked = [labels[index] for index in pick_images(labels, 9)]
    assert picked == [0, 0, 0, 1, 1, 1, 3, 3, 3]
    # Any image of a class may be chosen.
    assert len({pick_images(labels, 1)[0] for _ in range(30)}) > 15
    assert pick_images('aaa', 4) == [0, 1, 2]
