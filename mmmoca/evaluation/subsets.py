# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Lists of a few labelled images per class, for low-shot classification."""

import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from mmpretrain.datasets import CustomDataset

from mmmoca.datasets.image_places import stored_in
from mmmoca.files import read_lines
from mmmoca.messages import listed


def read_subset(
    path: str | Sequence[str], folder: str, classes: Sequence[str]
) -> dict[str, int]:
    """Read a list of images.

    In the format of the published lists for ImageNet, each line names an
    image, such as ``n04235860_14959.JPEG``. The part before the first ``_`` is
    the class, and the image is at ``<folder>/<class>/<line>``. If file names
    do not contain the class, a line is ``<class>/<image>``.

    Args:
        path (str | Sequence[str]): The list, or its lines.
        folder (str): Folder that contains the class folders.
        classes (Sequence[str]): Names of the class folders, in the order of
            the labels.

    Returns:
        dict[str, int]: ``<class>/<image>`` -> label, in the order of the
        list.

    Raises:
        ValueError: If there is no such list, or if it is empty, repeats an
            image, names an unknown class or an image outside the class
            folders, or has only one class.
        FileNotFoundError: If images that the list names are missing.
    """
    lines: Iterable[str] = path
    if not isinstance(path, str):
        path = '(drawn)'
    elif os.path.isfile(path):
        lines = map(str.strip, read_lines(path))
    else:
        raise ValueError(
            f'there is no subset list {path}: to draw subsets, write '
            'dict(shots=1, sets=3) instead of a list, or use '
            'tools/dataset_converters/make_subset.py'
        )
    images = [
        line if '/' in line else f'{line.partition("_")[0]}/{line}'
        for line in lines
        if line
    ]
    labels = {name: label for label, name in enumerate(classes)}
    subset = {image: labels.get(image.partition('/')[0]) for image in images}
    unknown = [image for image, label in subset.items() if label is None]
    if unknown:
        raise ValueError(
            f'{len(unknown)} images of the subset list {path} have an unknown '
            f'class: {listed(unknown, 3)} (classes: {listed(classes, 3)})'
        )
    if len(subset) < len(images) or len(set(subset.values())) < 2:
        raise ValueError(
            f'the subset list {path} must name each image once and have at '
            f'least two classes, but its {len(images)} lines name '
            f'{len(subset)} images of {len(set(subset.values()))} classes'
        )
    missing = [i for i in subset if not os.path.isfile(f'{folder}/{i}')]
    if missing:
        raise FileNotFoundError(
            f'{len(missing)} of {len(subset)} images of the subset list '
            f'{path} are not in {folder} ({listed(missing, 3)}): correct '
            'data_root'
        )
    return subset


def read_subsets(
    subsets: dict[str, str | Sequence[str] | dict | None],
    folder: str,
    classes: Sequence[str],
    images: Mapping[str, Collection[str]] | None = None,
    seed: int = 0,
) -> tuple[dict[str, int], dict[str, list[list[int]]]]:
    """Read or draw several lists, and join them so that no image repeats.

    Args:
        subsets (dict[str, str | Sequence[str] | dict | None]): Name -> one
            list, or several. To draw lists instead, give a dict with
            ``shots`` or ``percent`` of :func:`draw_subset`, and ``sets``, the
            number of lists (3 by default). None leaves a name out.
        folder (str): Folder that contains the class folders.
        classes (Sequence[str]): Names of the class folders, in the order of
            the labels.
        images (Mapping[str, Collection[str]], optional): Images to draw from,
            see :func:`draw_subset`.
        seed (int): Set i is drawn with the seed (seed, i), as in
            make_subset.py.

    Returns:
        tuple[dict[str, int], dict[str, list[list[int]]]]: All images, sorted,
        as ``<class>/<image>`` -> label; and name -> for each list, the
        positions of its images among all images.

    Raises:
        ValueError: As in :func:`read_subset` and :func:`draw_subset`; also if
            there is no list, or a name without one.
        FileNotFoundError: As in :func:`read_subset`.
    """

    def draw(sets: int = 3, **how) -> Iterator[list[str]]:
        for number in range(sets):
            drawn = draw_subset(images, (seed, number), **how)
            yield [f'{name}/{file}' for name, file in drawn]

    read = {}
    for name, lists in subsets.items():
        if lists is None:
            continue
        several: Iterable = [lists] if isinstance(lists, str) else lists
        if isinstance(lists, dict):
            several = draw(**lists)
        read[name] = [read_subset(one, folder, classes) for one in several]
    if not read or not all(read.values()):
        raise ValueError(
            'each name in subsets needs at least one list of images, such as '
            "subsets={'1shot': ['1shot_set0.txt', '1shot_set1.txt']}"
        )
    everything = [
        images.items() for lists in read.values() for images in lists
    ]
    union = dict(sorted(itertools.chain(*everything)))
    rows = {image: row for row, image in enumerate(union)}
    return union, {
        name: [[rows[image] for image in images] for images in lists]
        for name, lists in read.items()
    }


def images_by_class(dataset: CustomDataset) -> dict[str, dict[str, int]]:
    """Return the images of a data set with class folders, class by class.

    Args:
        dataset (CustomDataset): The data set, such as an
            :class:`~mmmoca.datasets.ImageFolder`.

    Returns:
        dict[str, dict[str, int]]: Class -> path of each image inside the
        class folder -> index of the image in the data set.

    Raises:
        ValueError: If the images are not files in folders, or if the classes
            do not have the names of their folders.
    """
    images: dict[str, dict[str, int]] = {
        name: {} for name in dataset.metainfo['classes']
    }
    for index in range(len(dataset)):
        path = dataset.get_data_info(index)['img_path']
        if stored_in(path) is not None:
            raise ValueError(
                f'{path} is not a file in a class folder, but lists of '
                'images need such files: use mmmoca.ImageFolder'
            )
        path = Path(path)
        name, *file = path.relative_to(dataset.img_prefix).parts
        if name not in images:
            raise ValueError(
                f'the class folder {name} has another name in metainfo.'
                f'classes ({listed(images)}): leave classes out, so that the '
                'folders name the classes'
            )
        images[name]['/'.join(file)] = index
    return images


def draw_subset(
    images: Mapping[str, Collection[str]],
    seed: Sequence[int],
    shots: int | None = None,
    percent: float | None = None,
) -> list[tuple[str, str]]:
    """Draw some images of each class.

    Smaller draws are contained in larger ones of the same seed: the image for
    1 shot is one of the two for 2 shots.

    Args:
        images (Mapping[str, Collection[str]]): Class -> its files, without
            the class folder.
        seed (Sequence[int]): Seed of the draw, such as (seed, set).
        shots (int, optional): Number of images of each class, at least 1.
        percent (float, optional): Percentage of each class to draw instead,
            above 0 and up to 100; at least one image of each class is drawn.

    Returns:
        list[tuple[str, str]]: Class and file of each image.

    Raises:
        ValueError: If not exactly one of ``shots`` and ``percent`` is given,
            if it is out of range, if there are fewer than two classes, or if a
            class has fewer images than are to be drawn.
    """
    given = shots if percent is None else percent
    both = (shots is None) == (percent is None)
    # For NaN, `given > 0` is False.
    if both or not (given > 0 and (percent or 0) <= 100):
        raise ValueError(
            'set either shots (at least 1) or percent (above 0 and at most '
            f'100), but got shots={shots} and percent={percent}'
        )
    if len(images) < 2:
        raise ValueError(
            'at least two classes are needed, but the images have '
            f'{listed(images) or "none"}'
        )
    drawn = []
    for number, (name, files) in enumerate(sorted(images.items())):
        count = shots or max(1, round(len(files) * percent / 100))
        if len(files) < count:
            raise ValueError(
                f'class {name} has {len(files)} images, fewer than {count}: '
                'draw fewer, or add images'
            )
        order = np.random.default_rng((*seed, number)).permutation(len(files))
        files = sorted(files)
        drawn += [(name, files[row]) for row in order[:count]]
    return drawn


def subset_line(name: str, file: str) -> str:
    """Return the line of a subset list for one image.

    Args:
        name (str): Class.
        file (str): Path of the image inside the folder of its class.

    Returns:
        str: ``file`` if its name contains the class, as in ImageNet; otherwise
        ``<class>/<file>``.
    """
    has_class = (
        '/' not in file and file.partition('_')[0] == name and '_' in file
    )
    return file if has_class else f'{name}/{file}'
