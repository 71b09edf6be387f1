# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Subset lists: the public format, and drawing them."""

import pytest

from mmmoca.evaluation.subsets import draw_subset, read_subset, subset_line

IMAGES = {
    'n01': [f'n01_{i}.JPEG' for i in range(10)],
    'n02': [f'n02_{i}.JPEG' for i in range(200)],
    'cats': [f'{i}.png' for i in range(7)],
}


def test_public_format(tmp_path):
    for name in ('n01/n01_1.JPEG', 'n02/n02_44_x.JPEG', 'cats/deep/1.png'):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    path = tmp_path / 'list.txt'
    lines = 'n02_44_x.JPEG\n\ncats/deep/1.png\r\n n01_1.JPEG\n'
    path.write_text(lines, 'utf-16')
    found = read_subset(str(path), str(tmp_path), ('cats', 'n01', 'n02'))
    assert list(found.items()) == [
        ('n02/n02_44_x.JPEG', 2),
        ('cats/deep/1.png', 0),
        ('n01/n01_1.JPEG', 1),
    ]


@pytest.mark.parametrize(
    'name, file, line',
    [
        ('n01', 'n01_1.JPEG', 'n01_1.JPEG'),
        ('n01', 'n02_1.JPEG', 'n01/n02_1.JPEG'),
        ('a_b', 'a_b_1.png', 'a_b/a_b_1.png'),
        ('n01', 'x/n01_1.png', 'n01/x/n01_1.png'),
    ],
)
def test_line_of_an_image(name, file, line):
    assert subset_line(name, file) == line


def _by_class(drawn):
    found = {name: [] for name in IMAGES}
    for name, file in drawn:
        found[name].append(file)
    return found


def test_draws_of_a_seed():
    one, two, five = (draw_subset(IMAGES, (3, 0), shots=n) for n in (1, 2, 5))
    assert set(one) < set(two) < set(five)
    for name, files in _by_class(five).items():
        assert len(files) == 5 and set(files) <= set(IMAGES[name])
    assert draw_subset(IMAGES, (3, 0), shots=5) == five
    assert draw_subset(IMAGES, (3, 1), shots=5) != five
    assert draw_subset(IMAGES, (4, 0), shots=5) != five
    # The order in which files were found makes no difference.
    turned = {name: files[::-1] for name, files in reversed(IMAGES.items())}
    assert draw_subset(turned, (3, 0), shots=5) == five
