# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds invalid entries in COCO annotation files.

This module does not import mmdet. A file may have a million objects, so each
object is checked only once, in plain Python.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

from mmmoca.messages import listed, printable

_REQUIRED = dict(
    images=('id', 'file_name', 'height', 'width'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
    categories=('id', 'name'),
)
# Keys whose values must be unique. If an image were listed twice, the objects
# of one entry would be background in the other entry.
_UNIQUE = dict(
    images=('id', 'file_name'), annotations=('id',), categories=('id', 'name')
)
# The pattern of a number in a compressed RLE. If the string ends within a
# number, pycocotools reads beyond the end of the string.
_COUNT = '[P-o]{0,6}[0-O]'


def check_entries(
    path: str, content: Any, masks: bool, evaluated: bool
) -> None:
    """Check the entries of an annotation file.

    Args:
        path (str): The file, for messages.
        content (Any): Its parsed content.
        masks (bool): Whether ``segmentation`` is read.
        evaluated (bool): Whether COCO's evaluation reads the file.

    Raises:
        ValueError: If entries are invalid (the message counts and names them),
            or if required lists or keys are missing.
    """
    for name, keys in _REQUIRED.items():
        entries = content.get(name) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and all(key in entry for key in keys)
            for entry in entries
        ):
            raise ValueError(
                f'{printable(path)} is not an annotation file in COCO format: '
                f'it needs a list {name!r} whose entries have '
                f'{", ".join(keys)}'
            )
    for found in (_names(content), _values(content, masks, evaluated)):
        problems = defaultdict(list)
        for problem, name in found:
            problems[problem].append(name)
        if problems:
            counts = (
                f'{len(ids)} {problem} ({listed(ids, 3)})'
                for problem, ids in problems.items()
            )
            raise ValueError(f'{printable(path)} has {"; ".join(counts)}')


def _names(content: dict) -> Iterator[tuple[str, Any]]:
    """Yield a problem and a value for each invalid or repeated id or name."""
    for name, keys in _UNIQUE.items():
        for key in keys:
            kind, seen = int if key == 'id' else str, set()
            problem = (
                f'{name} whose {key} repeats or is not of type {kind.__name__}'
            )
            for entry in content[name]:
                value = entry[key]
                if type(value) is not kind or value in seen:
                    yield problem, value
                else:
                    seen.add(value)


def _values(
    content: dict, masks: bool, evaluated: bool
) -> Iterator[tuple[str, Any]]:
    """Yield a problem and an id for each invalid entry.

    This checks the sizes of the images, and the references, boxes and masks of
    the annotations.
    """
    sizes = {i['id']: [i['height'], i['width']] for i in content['images']}
    categories = {category['id'] for category in content['categories']}
    for index, size in sizes.items():
        if not all(type(side) is int and side > 0 for side in size):
            yield 'images whose height or width is not a positive int', index
            sizes[index] = None
    for one in content['annotations']:
        image, category = one['image_id'], one['category_id']
        if type(image) is not int or type(category) is not int:
            problem = 'image_id or category_id is not an integer'
        elif image not in sizes:
            problem = 'image_id does not exist'
        elif category not in categories:
            problem = 'category_id does not exist'
        else:
            problem = _problem(one, sizes[image] if masks else None)
        if evaluated:
            problem = _evaluation_problem(one, masks) or problem
        if problem:
            yield f'annotations whose {problem}', one['id']


def _problem(one: dict, size: list[int] | None) -> str | None:
    """Say what is invalid in an object; return None if nothing is.

    The mask is checked only if ``size``, the image's [H, W], is given.
    """
    box, mask = one['bbox'], one.get('segmentation')
    if not are_finite(box) or len(box) != 4 or not are_finite([one['area']]):
        return 'bbox is not four finite numbers, or area is not finite'
    if any(one.get(key, 0) not in (0, 1) for key in ('iscrowd', 'ignore')):
        return 'iscrowd or ignore is not 0 or 1'
    if size is None:
        return None
    if not mask:
        return 'segmentation is missing, although with_mask=True reads it'
    if isinstance(mask, dict):
        counts = _counts(mask.get('counts'))
        # In pycocotools, pixels that the counts do not reach are undefined.
        same = mask.get('size') == size and sum(counts) == math.prod(size)
        return (
            None if same and min(counts) >= 0 else 'RLE does not fit its image'
        )
    if not isinstance(mask, list) or not all(map(are_finite, mask)):
        return 'segmentation is not a list of polygons, each a list of numbers'
    # pycocotools allocates memory for each pixel along the outline, or fails.
    if max((abs(x) for p in mask for x in p), default=0) > 9 * max(size):
        return 'segmentation reaches far beyond the image'
    # Fractions are at most 1. So are the coordinates of an object that is
    # inside the image's corner pixel, but such an object has a small box.
    if box[0] + box[2] > 2 and all(max(p, default=2) <= 1 for p in mask):
        return 'segmentation is in fractions of the image, not in pixels'
    return None


def _evaluation_problem(one: dict, masks: bool) -> str | None:
    """Say what pycocotools would misread or fail on, or return None."""
    if 'iscrowd' not in one:
        return 'iscrowd is missing, although the evaluation reads it'
    if one['id'] == 0:  # pycocotools' "no match"
        return 'id is 0, which the evaluation reads as no match'
    mask = one.get('segmentation')
    # If the first polygon has four numbers, pycocotools takes all polygons for
    # boxes.
    if masks and isinstance(mask, list) and mask and len(mask[0]) < 6:
        return 'segmentation begins with fewer than three points'
    return None


def _counts(rle: Any) -> list[int]:
    """Return the counts of an RLE, in any order; [] for anything else."""
    if isinstance(rle, list) and set(map(type, rle)) <= {int}:
        return rle
    if not isinstance(rle, str) or not re.fullmatch(f'({_COUNT})+', rle):
        return []
    # The fourth number and all later ones are differences from the count two
    # places earlier.
    numbers = [*map(_number, re.findall(_COUNT, rle))]
    odd, even = accumulate(numbers[1::2]), accumulate(numbers[2::2])
    return [numbers[0], *odd, *even]


@lru_cache(2**16)
def _number(code: str) -> int:
    """Decode a signed number of a compressed RLE, five bits a character."""
    parts = [ord(letter) - 48 & 31 for letter in code]
    number = sum(part << 5 * i for i, part in enumerate(parts))
    return number - (parts[-1] >> 4 << 5 * len(parts))


def are_finite(values: object) -> bool:
    """Return whether ``values`` is a list of finite numbers."""
    try:  # one sum() checks all of them
        return isinstance(values, list) and math.isfinite(sum(values))
    except TypeError:
        return False
