# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The picture of what a model learnt."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.text import Text
from mmengine.config import Config
from PIL import Image
from torch.nn import functional as F

from mmmoca.visualization.blocks import Block, draw_blocks
from mmmoca.visualization.found_masks import mask_block
from mmmoca.visualization.overview import draw_overview, model_blocks, nearest
from mmmoca.visualization.pictures import to_picture
from mmmoca.visualization.shown_images import build_sets, pick_images

from ..helpers.builders import PICTURE_SIZE as SIZE
from ..helpers.builders import pictured_moca
from ..helpers.images import DEMO_CONFIG, point_to, write_images
from ..helpers.runs import demo_model


def test_blocks_of_a_model():
    model, untrained = pictured_moca().train(), pictured_moca()
    images = torch.randint(0, 256, (2, 3, *SIZE), dtype=torch.uint8)
    torch.manual_seed(3)
    first, masked, features, words = model_blocks(
        model, untrained, images, True
    )
    torch.manual_seed(3)
    masks = model.masking.draw(2, torch.device('cpu'))
    assert masked.columns == ['round 1', 'round 2']
    for row, image in enumerate(images):
        picture = to_picture(image)
        np.testing.assert_array_equal(first.rows[row][0], picture)
        for shown, mask in zip(masked.rows[row], masks):
            same = (shown[::8, ::8] == picture).all(axis=2)
            same = same.reshape(4, 4, 8, 4).all(axis=(1, 3))
            visible = set(np.flatnonzero(same))
            assert visible == set(mask.visible[row].tolist())
    assert len(features.rows[0]) == 2 and len(words.rows) == 2
    assert model.training and not model.teacher.training


def test_pictures_are_of_one_size_and_blocks_stand_apart():
    picture = np.zeros((8, 16, 3))
    blocks = [
        Block('a', ['', ''], [[picture] * 2, [picture]]),
        Block('b', [''], [[picture]] * 2, [[True], [False]]),
    ]
    figure = draw_blocks(blocks, ['r', 's'], 0.5)
    places = [axes.get_position().bounds for axes in figure.axes]
    assert len({tuple(np.round(place[2:], 9)) for place in places}) == 1
    first, second, third = (place[0] for place in places[:3])
    width = places[0][2]
    assert 0 < 4 * (second - first - width) < third - second - width
    spines = [axes.spines['left'] for axes in figure.axes]
    colors = [to_hex(s.get_edgecolor()) for s in spines if s.get_visible()]
    assert colors == ['#2a9d4a', '#d1495b']


@pytest.mark.filterwarnings('ignore:4 of 6 images')
@pytest.mark.parametrize('labelled', [True, False])
def test_overview_of_a_checkpoint(tmp_path, labelled):
    """It names files, images and checkpoint, and spreads over folders.

    A recipe chose the number of words, which the checkpoint tells.
    """
    write_images(tmp_path, train=4, val=3, classes=2)
    torch.save(dict(state_dict=demo_model().state_dict()), tmp_path / 'a.pth')
    cfg = Config.fromfile(DEMO_CONFIG)
    point_to(cfg, tmp_path)
    cfg.model.codebook.update(num_words='auto', num_new_words='auto')
    data = None if labelled else str(tmp_path / 'val')
    given = cfg, str(tmp_path / 'a.pth'), data, 6, 7, 0
    figure = draw_overview(*given)
    texts = [text.get_text() for text in figure.findobj(Text)]
    rows = [text.split('\n')[0] for text in texts if '.jpg' in text]
    assert rows == ['class_0'] * 3 + ['class_1'] * 3
    assert 'masks' not in texts
    bank, number = ('train', 7) if labelled else ('val', 6)
    assert any('a.pth' in text and f'{tmp_path}/val' in text for text in texts)
    legend = f' {number} images drawn from {tmp_path}/{bank}'
    assert any(legend in text for text in texts)
    framed = [axes for axes in figure.axes if axes.spines.left.get_visible()]
    assert len(framed) == 60 * labelled
    for path in (tmp_path / 'val').glob('*/[01].jpg'):
        path.write_text('none')
    with pytest.warns(UserWarning, match='4 of 6 images.*class_'):
        draw_overview(*given)
    cfg.val_dataloader.dataset.pipeline[2].crop_size = 32
    with pytest.raises(ValueError, match=r'\(48, 48\).*\(32, 32\)'):
        draw_overview(*given)


def test_images_of_different_classes():
    labels = [0] * 50 + [3] * 3 + [1] * 47
    picked = [labels[index] for index in pick_images(labels, 8)]
    assert picked == [0, 0, 0, 1, 1, 1, 3, 3]
    # Any image of a class has its chance.
    assert len({pick_images(labels, 1)[0] for _ in range(30)}) > 15
    assert pick_images('aaa', 4) == [0, 1, 2]


def test_neighbours():
    torch.manual_seed(0)
    bank = F.normalize(torch.randn(30, 6), dim=1)
    bank[5] = bank[4]
    own = [4, 5, 20]
    similarity = (bank[own] @ bank.T).numpy()
    similarity[range(3), own] = -2
    order = (-similarity).argsort(axis=1)
    found = nearest(bank[own], bank, own)
    assert found == order[:, :5].tolist()
    # Of images that are not in the bank.
    found = nearest(bank[own], bank, [None] * 3)
    assert [row[0] for row in found] == [4, 4, 20]
    assert [row[1:] for row in found[::2]] == order[::2, :4].tolist()


def test_masks_found_in_context(tmp_path):
    """Beside those of the folder, cut as the images; no mask is an image."""
    for folder in ('images/a', 'masks/a'):
        (tmp_path / folder).mkdir(parents=True)
    for index in range(7):
        mask = np.zeros((60, 80), np.uint8)
        mask[:, 10 * index : 10 * index + 30] = 1
        picture = Image.fromarray(255 * mask).convert('RGB')
        picture.save(tmp_path / f'images/a/{index}.png')
        if index:
            Image.fromarray(mask).save(tmp_path / f'masks/a/{index}.png')
    torch.save(dict(state_dict=demo_model().state_dict()), tmp_path / 'a.pth')
    cfg = Config.fromfile(DEMO_CONFIG)
    sets = build_sets(cfg, str(tmp_path))
    assert len(sets[0]) == 7
    block = mask_block(demo_model(), (sets[0], [0, 3]), (sets[1], range(7)), 1)
    assert not block.rows[0] and block.columns[0].endswith('180 patches')
    picture = to_picture(sets[0][3]['inputs'])
    shape = picture[..., 0] > 0.5
    found, true = (image[..., 2] > 0.3 for image in block.rows[1])
    assert (true == shape).mean() > 0.97 and (found == shape).mean() > 0.85
    figure = draw_overview(cfg, str(tmp_path / 'a.pth'), str(tmp_path), 2, 7)
    assert 'masks' in [text.get_text() for text in figure.findobj(Text)]
