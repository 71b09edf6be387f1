# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reports facts about the images, masks and boxes of data sets."""

import itertools
from collections.abc import Mapping, Sequence, Sized

from ..seeding import members
from .boxes import BoxFacts, box_facts, boxes_section
from .images import NAMED, PIXELS, SECONDS, image_facts, images_section
from .masks import MaskFacts, mask_facts, masks_section
from .report import Look, Section

__all__ = ['Look', 'Section', 'look_at']


def look_at(
    sets: Mapping[str, Sized],
    normalise: tuple[Sequence[float], Sequence[float]] | None = None,
    pixels: int = PIXELS,
    num_classes: int | None = None,
) -> Look:
    """Report on data sets: file names, headers, and pixels of some images.

    Args:
        sets (Mapping[str, Sized]): MMEngine data sets or wrappers. The key
            says what a set is for, such as 'train', 'val' or 'val bank'.
        normalise (tuple[Sequence[float], Sequence[float]], optional): Mean
            and std with which the model normalises; colours in RGB order.
        pixels (int): Number of images to decode from each set.
        num_classes (int, optional): Number of classes of the classifier.

    Returns:
        Look: The report: tables, what stands out, and what is certainly wrong.
    """
    seconds = SECONDS / max(1, len(sets))
    images = {
        role: image_facts(dataset, pixels, seconds)
        for role, dataset in sets.items()
    }
    masks: dict[str, MaskFacts] = {}
    boxes: dict[str, BoxFacts] = {}
    for role, dataset in sets.items():
        for number, part in enumerate(members(dataset), 1):
            name = role if number == 1 else f'{role} {number}'
            if hasattr(part, 'reduce_zero_label'):  # of mmsegmentation
                masks[name] = mask_facts(part)
            if (found := box_facts(part)) is not None:
                boxes[name] = found
    sections = [images_section(images, normalise, num_classes)]
    if masks:
        sections.append(masks_section(masks))
    if boxes:
        sections.append(boxes_section(boxes))
    named = (
        path
        for facts in images.values()
        for path in itertools.islice(facts.unreadable, NAMED)
    )
    return Look(sections, frozenset(named))
