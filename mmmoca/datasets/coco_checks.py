# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What training on annotations of COCO's format would trip over."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence

__all__ = [
    'check_annotations',
    'check_classes',
    'check_images',
    'check_masks',
]

_REQUIRED = dict(
    images=('id', 'file_name', 'height', 'width'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
    categories=('id', 'name'),
)


def check_annotations(content: dict, path: str) -> None:
    """Check that a file has what COCO's format has.

    Args:
        content (dict): What the JSON file holds.
        path (str): Path of the file.

    Raises:
        ValueError: If a list or a key is missing.
    """
    for name, keys in _REQUIRED.items():
        if name not in content:
            raise ValueError(
                f'{path} is no annotation file in the format of COCO: it has '
                f'no list {name!r}'
            )
        for number, entry in enumerate(content[name]):
            for key in keys:
                if key not in entry:
                    raise ValueError(
                        f'{path}: entry {number} of {name!r} has no {key!r}'
                    )


def check_classes(content: dict, path: str, classes: Sequence[str]) -> None:
    """Check that the classes are the file's categories, in its order.

    Args:
        content (dict): What the JSON file holds.
        path (str): Path of the file.
        classes (Sequence[str]): Classes of the config.

    Raises:
        ValueError: If a class is no category, or the orders differ.
    """
    if isinstance(classes, str):
        raise ValueError(
            f'classes must be a tuple of names, but is the text {classes!r}: '
            f'write metainfo=dict(classes=({classes!r},)) for one class'
        )
    known = [category['name'] for category in content['categories']]
    missing = [name for name in classes if name not in known]
    ordered = [name for name in known if name in classes]
    if missing:
        problem = f'has no category {_examples(missing)}'
    elif ordered != list(classes):
        problem = 'has the categories in another order'
    else:
        return
    raise ValueError(
        f'{path} {problem}, and labels follow its order: write '
        'metainfo=dict(classes=...) of the dataset as the categories of the '
        f'file, or some of them in this order: {_examples(known, 100)}'
    )


def check_images(paths: Iterable[str], ann_file: str) -> None:
    """Check that images exist, by one listing of each folder.

    Args:
        paths (Iterable[str]): Paths of the images.
        ann_file (str): Path of the file that names them.

    Raises:
        FileNotFoundError: If there are images missing.
    """
    wanted = defaultdict(set)
    for path in paths:
        folder, name = os.path.split(path)
        wanted[folder].add(name)
    missing = [
        os.path.join(folder, name)
        for folder, names in wanted.items()
        for name in sorted(names - _listing(folder))
    ]
    if missing:
        count = sum(map(len, wanted.values()))
        raise FileNotFoundError(
            f'{len(missing)} of the {count} images of {ann_file} are missing '
            f'({_examples(missing)}): correct data_root and data_prefix.img '
            'of the dataset, or the file'
        )


def _listing(folder: str) -> set[str]:
    return set(os.listdir(folder)) if os.path.isdir(folder) else set()


def check_masks(data: Iterable[dict], ann_file: str) -> None:
    """Check that every object has a mask.

    Args:
        data (Iterable[dict]): mmdet's description of the images.
        ann_file (str): Path of the file that they come from.

    Raises:
        ValueError: If there is an object without one.
    """
    for info in data:
        if any('mask' not in instance for instance in info['instances']):
            raise ValueError(
                f'{ann_file} has an object without segmentation, on the image '
                f'{info["img_path"]}: add it, or leave out with_mask=True of '
                'LoadAnnotations and train a detector without masks'
            )


def _examples(names: Sequence[str], limit: int = 3) -> str:
    return ', '.join([*names[:limit], *['...'] * (len(names) > limit)])
