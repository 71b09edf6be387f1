# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Facts about objects in COCO's format, counted while they are parsed."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmmoca.messages import listed

from ..coco_entries import are_finite
from .report import Section

SMALL = 32**2  # pixels; COCO's limit for small objects
MOST_IMAGES = 200_000  # images whose objects are counted
MOST_POLYGONS = 20_000  # masks that are compared with boxes
OTHERS = 'of other classes'  # COCO's evaluation leaves these out


class BoxFacts:
    """Facts about the objects of one annotation file.

    Args:
        classes (Sequence[str]): Names of the classes.
        masks (bool): Whether masks are read.
    """

    def __init__(self, classes: Sequence[str], masks: bool) -> None:
        self.masks = masks
        self.classes: dict[str, Counter[str]] = {
            name: Counter() for name in classes
        }
        self.left_out: dict[str, list[int]] = defaultdict(list)
        self._seen: set[tuple] = set()
        self._compared = 0  # number of masks

    def take(self, one: dict, size: tuple[int, int], name: str | None) -> bool:
        """Count an object.

        Args:
            one (dict): The object, as in the annotation file.
            size (tuple[int, int]): H and W of its image.
            name (str, optional): Name of its class; None if its category is
                not among the classes.

        Returns:
            bool: Whether mmdet gives the object to a detector.
        """
        x, y, width, height = one['bbox']
        right, bottom = x + width - size[1], y + height - size[0]
        # Width and height of the part of the box that is inside the image.
        across = width - max(right, 0) - max(-x, 0)
        down = height - max(bottom, 0) - max(-y, 0)
        polygons = None
        if self.masks or self._compared < MOST_POLYGONS:
            polygons = _polygons(one.get('segmentation'))
        if name is None:
            why = OTHERS
        elif one.get('ignore'):
            why = 'to be ignored'
        elif min(width, height) < 0:
            why = 'with a negative width or height'
        elif width < 1 or height < 1:
            why = 'smaller than a pixel, as if bbox were normalised to [0, 1]'
        elif one['area'] <= 0:
            why = 'whose area is 0'
        elif across <= 0 or down <= 0:
            why = 'outside their image'
        elif self.masks and polygons == []:
            why = 'without a polygon of at least three points'
        else:
            counts = self.classes[name]
            key = one['image_id'], name, x, y, width, height
            crowd = bool(one.get('iscrowd'))
            counts['objects'] += 1
            counts['crowds'] += crowd
            counts['small'] += width * height < SMALL
            counts['beyond the image'] += max(right, bottom, -x, -y) > 1
            counts['twice'] += key in self._seen
            if not crowd and self._compared < MOST_POLYGONS:
                mask = polygons or _corners(one.get('segmentation'), size[0])
                self._compared += bool(mask)
                wrong = bool(mask) and _differ(one['bbox'], mask)
                counts['unlike their mask'] += wrong
            self._seen.add(key)
            return True
        self.left_out[why].append(one['id'])
        return False

    def forget_objects(self) -> None:
        """Free the memory that was used to find objects that occur twice."""
        self._seen = set()

    def totals(self) -> Counter[str]:
        """Return the counts of all classes together."""
        return sum(self.classes.values(), Counter())

    def odd(self, file: str, judged: bool = False) -> list[str]:
        """Say what stands out.

        Args:
            file (str): Name of the annotations in the sentences.
            judged (bool): Whether a detector is evaluated on them. COCO's
                evaluation reads the file itself, so it counts objects that
                mmdet leaves out. Defaults to False.

        Returns:
            list[str]: One sentence for each finding.
        """
        found, lines = self.totals(), []
        objects = found['objects']
        if self.left_out:
            reasons = '; '.join(
                f'{len(ids)} {why} (id {listed(ids, 3)})'
                for why, ids in self.left_out.items()
            )
            left = sum(map(len, self.left_out.values()))
            counted = (
                ". COCO's evaluation still counts those that belong to this "
                "run's classes: "
                'remove them from the file, or set iscrowd=1'
            )
            judged = judged and self.left_out.keys() != {OTHERS}
            lines.append(
                f'mmdet leaves out {left} objects of {file} and uses '
                f'{objects}. Left out: {reasons}{counted * judged}'
            )
        if found['beyond the image'] > 0.05 * objects:
            lines.append(
                f'{found["beyond the image"]} of the {objects} boxes of '
                f'{file} reach beyond their image: bbox must be [x, y, width, '
                'height], not two corners'
            )
        if found['unlike their mask'] > 0.05 * self._compared:
            lines.append(
                f'{found["unlike their mask"]} of {self._compared} boxes of '
                f'{file} differ from the boxes around their masks'
            )
        if found['twice']:
            lines.append(f'{found["twice"]} boxes of {file} occur twice')
        empty = [
            name
            for name, counts in self.classes.items()
            if counts['objects'] == counts['crowds']
        ]
        if empty:
            lines.append(
                f'except for crowds, {file} has no object of these classes: '
                f'{listed(empty)}'
            )
        return lines


def box_facts(dataset: Any) -> BoxFacts | None:
    """Return the facts about the objects of a data set, if it has any.

    Args:
        dataset (Any): The data set. :class:`CheckedCocoDataset` has counted
            its objects while it parsed them. For other data sets of mmdet, the
            objects that their parser keeps are counted now.
    """
    found = getattr(dataset, 'boxes', None)
    if isinstance(found, BoxFacts):
        return found
    number = len(dataset)
    if not number or 'instances' not in dataset.get_data_info(0):
        return None
    names = dataset.metainfo.get('classes') or ()
    facts = BoxFacts(names, masks=False)
    for index in range(min(number, MOST_IMAGES)):
        info = dataset.get_data_info(index)
        for place, one in enumerate(info['instances']):
            left, top, right, bottom = one['bbox']
            width, height = right - left, bottom - top
            label = one['bbox_label']
            known = 0 <= label < len(names)
            facts.take(
                dict(
                    id=place,
                    image_id=index,
                    bbox=(left, top, width, height),
                    area=width * height,
                    iscrowd=one.get('ignore_flag'),
                ),
                (info['height'], info['width']),
                names[label] if known else None,
            )
    return facts


def _polygons(mask: object) -> list[list[float]] | None:
    """Return the polygons of a mask, as mmdet reads them; None for an RLE.

    Where mmdet loads masks, it drops an object without any polygon.
    """
    if not isinstance(mask, list):
        return None
    return [
        part
        for part in mask
        if are_finite(part) and len(part) > 5 and len(part) % 2 == 0
    ]


def _corners(mask: object, height: int) -> list[list[float]] | None:
    """Return the box of an uncompressed RLE as two corners, or else None."""
    counts = mask.get('counts') if isinstance(mask, dict) else None
    if not isinstance(counts, list) or not are_finite(counts):
        return None
    # Runs of 0 and of 1 alternate, beginning with 0, column by column.
    ends = np.cumsum(counts)
    starts, stops = ends[:-1:2], ends[1::2]
    starts, lasts = starts[stops > starts], stops[stops > starts] - 1
    if not len(starts):
        return None
    spans = (starts // height != lasts // height).any()
    top, bottom = (starts % height).min(), (lasts % height).max() + 1
    top, bottom = (0, height) if spans else (top, bottom)
    return [[starts[0] // height, top, lasts[-1] // height + 1, bottom]]


def _differ(box: Sequence[float], polygons: list[list[float]]) -> bool:
    """Return whether a box clearly differs from the box around polygons."""
    x, y, width, height = box
    for axis, start, length in ((0, x, width), (1, y, height)):
        places = [place for part in polygons for place in part[axis::2]]
        slack = max(2, 0.1 * length)
        ends = min(places) - start, max(places) - start - length
        if max(map(abs, ends)) > slack:
            return True
    return False


def boxes_section(sets: Mapping[str, BoxFacts]) -> Section:
    """Compare the objects of data sets, class by class.

    Args:
        sets (Mapping[str, BoxFacts]): Facts about each set, by its name, such
            as 'train'.

    Returns:
        Section: A row for each class, and what stands out.
    """
    section = Section('boxes', ['class', *sets])
    for role, fact in sets.items():
        section.odd += fact.odd(role, not role.startswith('train'))
    facts = list(sets.values())
    for name in dict.fromkeys(name for fact in facts for name in fact.classes):
        counts = [fact.classes.get(name, Counter()) for fact in facts]
        section.rows.append([name, *map(_cell, counts)])
    return section


def _cell(counts: Counter[str]) -> str:
    """Write how many objects a class has, and how many are special."""
    kinds = 'crowds', 'small', 'beyond the image', 'twice'
    special = [f'{counts[kind]} {kind}' for kind in kinds if counts[kind]]
    more = f' ({", ".join(special)})' if special else ''
    return f'{counts["objects"]}{more}'
