# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Facts about the masks of mmsegmentation's data sets.

This module does not import mmsegmentation.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dataset import BaseDataset

from mmmoca.messages import listed, printable

from ..file_extensions import counted, left_out_sentence, with_extension
from ..headers import open_image, read_header
from ..image_folder import visible_files
from ..image_set import strict_loader
from ..loading import TURNING
from ..masks import read_labels
from ..seeding import evenly_spaced_rows
from .report import Section

MASKS = 200  # number of masks that are read
PATHS = 'img_path', 'seg_map_path'


@dataclass
class MaskFacts:
    """Facts about the masks of one data set.

    Attributes:
        classes (Sequence[str]): Names of the classes, in order.
        number (int): Number of masks that were read.
        pixels (Counter[int]): Number of pixels of each class, by class number.
            The key -1 counts the pixels that are left out.
        masks (Counter[int]): Number of masks in which each class occurs, by
            class number. The key -1 counts the masks with left-out pixels.
        kinds (Counter[str]): Number of masks of each format, mode and bits.
        palettes (Counter[bytes]): Number of masks with each palette. Only the
            colours of the classes count.
        left_out (Counter[str]): Number of files of each kind that are left
            out, see :func:`left_out_of_masks`.
        wanted (str): Which files the data set uses.
        foreign (dict[int, str]): Label ids that stand for no class, each with
            the first mask that contains it.
        wrong (list[str]): Masks that a run cannot use, and why: colours
            instead of indices, a size other than the image's, label ids that
            stand for no class, or only the values 0 and 255 in all masks.
    """

    classes: Sequence[str]
    number: int = 0
    pixels: Counter[int] = field(default_factory=Counter)
    masks: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    palettes: Counter[bytes] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    wanted: str = ''
    foreign: dict[int, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def share(self, label: int) -> str:
        """Return the share of the pixels with the given label, for a table."""
        return f'{self.pixels[label] / max(1, self.pixels.total()):.2%}'

    def sentences(self) -> list[str]:
        """Return what stands out, one sentence each."""
        lines = []
        if self.left_out:
            lines.append(left_out_sentence(self.left_out, self.wanted))
        if lossy := sum(n for k, n in self.kinds.items() if 'JPEG' in k):
            lines.append(
                f'{lossy} of {self.number} masks are JPEG files, whose '
                'compression changes labels: save them as PNG'
            )
        if len(self.palettes) > 1:
            lines.append(
                f'the masks have {len(self.palettes)} different palettes, so '
                'one colour may stand for several classes: only the indices '
                'matter'
            )
        empty = [
            str(name)
            for label, name in enumerate(self.classes)
            if not self.pixels[label]
        ]
        if not self.masks:  # no mask is usable
            return lines
        if not self.pixels.keys() - {-1}:
            lines.append(
                'all pixels of the masks are left out, so nothing can be '
                'learned from them'
            )
        elif empty:
            lines.append(f'no pixel belongs to the classes: {listed(empty)}')
        return lines


def mask_facts(dataset: BaseDataset, most: int = MASKS) -> MaskFacts:
    """Look at the masks of a data set, and check that they fit its images.

    Args:
        dataset (BaseDataset): An mmsegmentation data set, not a wrapper. The
            first ``LoadImageFromFile`` of its pipeline loads the images.
        most (int): Largest number of masks to read, evenly spaced.

    Returns:
        MaskFacts: The facts.
    """
    facts = MaskFacts(
        dataset.metainfo['classes'],
        left_out=left_out_of_masks(dataset),
        wanted=wanted_names(dataset),
    )
    ids: set[int] = set()
    for index in evenly_spaced_rows(most, len(dataset)):
        info = dataset.get_data_info(index)
        if 'seg_map_path' in info:
            try:
                ids |= _look_at_mask(facts, dataset, info)
            except (OSError, ValueError) as error:
                facts.wrong.append(str(error))
    if facts.foreign:
        facts.wrong.append(_foreign_labels(facts, dataset, ids))
    several = len(facts.classes) > 1
    if ids == {0, 255} and several and not dataset.reduce_zero_label:
        facts.wrong.append(
            f'the masks of {dataset.data_prefix["seg_map_path"]} have only '
            'the values 0 and 255, but training leaves out 255: write 1 '
            'instead of 255 if it stands for the second class'
        )
    return facts


def _look_at_mask(
    facts: MaskFacts, dataset: BaseDataset, info: dict
) -> set[int]:
    """Count the pixels of a mask, and return its label ids."""
    path = Path(info['seg_map_path'])
    load = strict_loader(dataset)
    image = None if load is None else load(dict(info))['img']
    mask = read_labels(path, None if image is None else image.shape[:2])
    content = path.read_bytes()
    header = read_header(content)
    if image is not None and _is_unclear(info['img_path'], load):
        raise ValueError(
            f'the EXIF orientation of {printable(info["img_path"])} turns the '
            'image, but not its mask: save the image as it is shown, or set '
            "color_type='color_ignore_orientation' in its loader"
        )
    facts.number += 1
    facts.kinds[f'{header.format} {header.mode} of {header.bits} bits'] += 1
    if header.mode == 'P' and (palette := open_image(content).getpalette()):
        facts.palettes[bytes(palette[: 3 * len(facts.classes)])] += 1
    ids, counts = np.unique(mask, return_counts=True)
    number, ignored = len(facts.classes), dataset.ignore_index
    # With reduce_zero_label, mmseg's LoadAnnotations leaves out 0, and counts
    # classes from 1.
    start = int(dataset.reduce_zero_label)
    known = info.get('label_map') or range(number)
    labels = {old + start: known[old] for old in known}
    labels |= dict.fromkeys([*range(start), ignored], -1)
    for old in sorted(set(ids.tolist()) - labels.keys()):
        facts.foreign.setdefault(old, printable(path))
    there: Counter[int] = Counter()
    for old, count in zip(ids.tolist(), counts.tolist()):
        if (label := labels.get(old)) is None:
            continue
        there[-1 if label in (255, ignored) else label] += count
    facts.pixels += there
    facts.masks.update(there.keys())
    return set(ids.tolist())


def _foreign_labels(
    facts: MaskFacts, dataset: BaseDataset, ids: set[int]
) -> str:
    """Say which label ids stand for no class, and what to write."""
    number, start = len(facts.classes), int(dataset.reduce_zero_label)
    foreign = sorted(facts.foreign)
    path = facts.foreign[foreign[0]]
    advice = 'or give all label ids a name in classes (metainfo.classes)'
    if foreign[0] == number and 0 not in ids and not start:
        advice = 'or, if ids begin with 1, set reduce_zero_label=True'
    if path.endswith('_labelIds.png'):  # of Cityscapes
        advice = 'as in the _labelTrainIds files of csCreateTrainIdLabelImgs'
    return (
        f'masks have the label ids {listed(foreign)} (see {path}), but '
        f'there are {number} classes: use {start} to {number - 1 + start}, '
        f'and {dataset.ignore_index} for pixels to leave out, {advice}'
    )


def wanted_names(dataset: BaseDataset) -> str:
    """Say which files a data set of mmsegmentation uses."""
    masks = f'a mask NAME{dataset.seg_map_suffix}'
    return f'an image NAME{dataset.img_suffix} needs {masks}'


def left_out_of_masks(dataset: BaseDataset) -> Counter[str]:
    """Count unused files in the image folder, and masks without an image.

    Args:
        dataset (BaseDataset): An mmsegmentation data set. If it has a list
            of names, nothing is counted: the list leaves out the other
            files on purpose.

    Returns:
        Counter[str]: Number of files of each kind.
    """
    left_out: Counter[str] = Counter()
    if dataset.ann_file:
        return left_out
    infos = dataset.load_data_list()
    taken = {info[key] for info in infos for key in PATHS if key in info}
    images, masks = (dataset.data_prefix.get(key) or '' for key in PATHS)
    for place in {images, masks}:
        files = visible_files(place) if os.path.isdir(place) else ()
        others = [path for path in files if path not in taken]
        orphans = [p for p in others if p.endswith(dataset.seg_map_suffix)]
        if place == masks:
            left_out['masks without an image'] += len(orphans)
            others = sorted(set(others) - set(orphans))
        if place == images:
            list(with_extension(others, (), left_out))  # counts all of them
    return +left_out


def _is_unclear(path: str, load: Any) -> bool:
    """Return whether EXIF turns an image without changing its size."""
    turns = getattr(load, 'color_type', '') in TURNING
    return turns and read_header(Path(path).read_bytes()).hides_turn


def masks_section(sets: Mapping[str, MaskFacts]) -> Section:
    """Compare the masks of data sets, class by class.

    Args:
        sets (Mapping[str, MaskFacts]): Facts about each set, by its name.

    Returns:
        Section: A row for each class, with its share of the pixels and the
        number of masks in which it occurs.
    """
    section = Section('masks', ['class'])
    for role in sets:
        section.columns += [f'pixels, {role}', f'masks, {role}']
    facts: list[Any] = list(sets.values())
    labels = range(max(len(fact.classes) for fact in facts))
    for label in (*labels, -1):
        names = [f.classes[label] for f in facts if label < len(f.classes)]
        row = ['left out' if label < 0 else f'{label} {names[0]}']
        for fact in facts:
            there = f'{fact.masks[label]} of {fact.number}'
            row += [fact.share(label), there]
        section.rows.append(row)
    section.rows.append(['format'])
    for role, fact in sets.items():
        section.rows[-1] += [counted(fact.kinds), '']
        section.odd += [f'{role}: {line}' for line in fact.sentences()]
        if fact.wrong:
            section.wrong.append(f'{role}: {listed(fact.wrong, 2)}')
    return section
