# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What makes no sense in an annotation file of COCO's format, by value.

mmdet is not imported here. A file has up to a million objects: each is looked
at once, in plain Python.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mmmoca.messages import listed, printable

_REQUIRED = dict(
    images=('id', 'file_name', 'height', 'width'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
    categories=('id', 'name'),
)
# What may occur once. The objects of an image that is listed twice would be
# background of the other one.
_UNIQUE = dict(
    images=('id', 'file_name'), annotations=('id',), categories=('id', 'name')
)


def check_entries(
    path: str, content: Any, masks: bool, evaluated: bool
) -> None:
    """Check the entries of an annotation file.

    Args:
        path (str): The file, for messages.
        content (Any): What it contains.
        masks (bool): Whether ``segmentation`` is read.
        evaluated (bool): Whether COCO's evaluation reads it.

    Raises:
        ValueError: Counts and names the entries that make no sense.
    """
    for name, keys in _REQUIRED.items():
        entries = content.get(name) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and all(key in entry for key in keys)
            for entry in entries
        ):
            raise ValueError(
                f'{printable(path)} is no annotation file of COCO: it needs '
                f'a list {name!r} whose entries have {", ".join(keys)}'
            )
    for found in (_names(content), _values(content, masks, evaluated)):
        if problems := by_problem(found):
            raise ValueError(f'{printable(path)} has {counted(problems)}')


def by_problem(found: Iterable[tuple[str, Any]]) -> dict[str, list]:
    """Collect the ids of entries by their problem.

    Args:
        found (Iterable[tuple[str, Any]]): Problems and ids.

    Returns:
        dict[str, list]: The ids of each problem.
    """
    problems = defaultdict(list)
    for problem, entry in found:
        problems[problem].append(entry)
    return problems


def counted(problems: Mapping[str, list]) -> str:
    """Count problems and name the first entries of each.

    Args:
        problems (Mapping[str, list]): Of :func:`by_problem`.

    Returns:
        str: For example ``2 annotations without area (id 3, 7)``.
    """
    return '; '.join(
        f'{len(ids)} {problem} (id {listed(ids, 3)})'
        for problem, ids in problems.items()
    )


def _names(content: dict) -> Iterator[tuple[str, Any]]:
    """Ids and names that are none or occur twice."""
    words = {int: 'whole number', str: 'text'}
    for name, keys in _UNIQUE.items():
        for key in keys:
            kind, seen = int if key == 'id' else str, set()
            for entry in content[name]:
                value = entry[key]
                if type(value) is not kind:
                    yield f'{name} whose {key} is no {words[kind]}', value
                elif value in seen:
                    yield f'{name} whose {key} occurs before', entry['id']
                else:
                    seen.add(value)


def _values(
    content: dict, masks: bool, evaluated: bool
) -> Iterator[tuple[str, Any]]:
    """Sizes, references, boxes and masks that make no sense."""
    sizes = {i['id']: [i['height'], i['width']] for i in content['images']}
    categories = {category['id'] for category in content['categories']}
    for index, size in sizes.items():
        if not all(type(side) is int and side > 0 for side in size):
            yield 'images whose height or width is no number of pixels', index
    for one in content['annotations']:
        for key, known in (('image_id', sizes), ('category_id', categories)):
            if type(one[key]) is not int or one[key] not in known:
                yield f'annotations whose {key} does not exist', one['id']
                break
        else:
            problem = _problem(one, masks and sizes[one['image_id']])
            if problem:
                yield f'annotations whose {problem}', one['id']
        if evaluated and 'iscrowd' not in one:
            missing = 'annotations without iscrowd (write 0), which is read'
            yield missing, one['id']
        if evaluated and one['id'] == 0:
            yield "annotations of id 0, pycocotools' 'no match'", 0


def _problem(one: dict, size: list[int] | bool) -> str | None:
    """What makes no sense in an object; of its mask, if it has a size."""
    box = one['bbox']
    if not _numbers(box) or len(box) != 4 or not _numbers([one['area']]):
        return 'bbox or area is not finite'
    for key in ('iscrowd', 'ignore'):
        if one.get(key, 0) not in (0, 1):
            return f'{key} is not 0 or 1'
    mask = one.get('segmentation')
    if not size or not mask:
        return None
    if isinstance(mask, dict):
        same = mask.get('size') == size and 'counts' in mask
        return None if same else 'RLE has not the size of the image'
    if not isinstance(mask, list) or not all(map(_numbers, mask)):
        return 'segmentation is no list of polygons, each a list of numbers'
    # Polygons of the corner pixel have a small box.
    if box[0] + box[2] > 2 and all(max(p, default=2) <= 1 for p in mask):
        return 'segmentation has shares of 1 for pixels'
    return None


def _numbers(values: Any) -> bool:
    """Whether these are finite numbers in a list."""
    try:  # sum() looks at all of them at once
        return isinstance(values, list) and math.isfinite(sum(values))
    except TypeError:
        return False


def why_left_out(
    one: dict, image: dict, classes: Mapping[int, int], masks: bool
) -> str | None:
    """Why mmdet leaves out an object, None if it does not.

    Args:
        one (dict): The annotation, checked by :func:`check_entries`.
        image (dict): The entry of its image.
        classes (Mapping[int, int]): Category id -> label.
        masks (bool): Whether masks are loaded.

    Returns:
        str | None: The reason.
    """
    x, y, width, height = one['bbox']
    mask = one.get('segmentation')
    if one.get('ignore'):
        return 'with ignore=1'
    if one['category_id'] not in classes:
        return 'of a category that is no class'
    if min(x + width, image['width']) <= max(x, 0) or (
        min(y + height, image['height']) <= max(y, 0)
    ):
        return 'with a box outside of the image'
    if width < 1 or height < 1:
        return 'with a box of less than a pixel (write pixels, not shares)'
    if one['area'] <= 0:
        return 'without area'
    if not masks or not mask or isinstance(mask, dict):
        return None
    if not any(len(p) >= 6 and len(p) % 2 == 0 for p in mask):
        return 'without a polygon of three points or more'
    return None
