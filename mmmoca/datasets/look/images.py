# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Facts about the images of a data set."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform, LoadImageFromFile
from mmengine import fileio

from mmmoca.files import check_regular
from mmmoca.messages import listed, printable

from ..band_loading import LoadBands
from ..class_names import check_same_classes
from ..file_extensions import counted, left_out_sentence
from ..headers import TURNED, Header, read_header
from ..image_set import loader_of, strict_loader
from ..loading import TURNING, LoadImage, size_problem
from ..seeding import members
from .report import Section

MOST_HEADERS = 20_000
SECONDS = 3.0  # limit for reading headers, on a slow disk
PIXELS = 200  # images that are decoded
LONG = 8  # an image is long if its sides have a larger ratio
NAMED = 5  # unreadable images that are named for each set
LABELS = 32  # class numbers in masks are below this, or 255
MOST_LABELS = 200_000  # labels that can be counted within a second
_UNCLEAR = 'turned by EXIF, with annotated boxes'
# How images that stand out are loaded, by the phrase that describes them.
_HINTS = {
    'with transparency': 'the stored colours are used',
    'with EXIF that cannot be read': 'they are used as they are stored',
    'of several pages or frames': 'the first is used',
    _UNCLEAR: 'their boxes must be those of the turned image',
}


@dataclass
class ImageFacts:
    """Facts about the images of one data set.

    Attributes:
        number (int): Number of images.
        left_out (Counter[str]): Number of files of each kind that are left
            out.
        headers (int): Number of images whose header was read.
        kinds (Counter[str]): Number of images of each format, mode and bits.
        odd (Counter[str]): Number of images that stand out, by a phrase that
            says how.
        examples (dict[str, str]): One image for each of these phrases.
        sizes (list[tuple[int, int]]): H and W of each image, after its EXIF
            rotation unless the loader ignores it.
        unreadable (dict[str, str]): Images that cannot be read, and why.
        classes (Counter[str]): Number of images of each class, if there are
            classes.
        names (Sequence[str]): Names of all classes, if the set has names.
        labels (dict[int, str]): Names of the classes that have images, by
            class number.
        seen (dict[bytes, str]): Labels of images, by a digest of their
            content.
        decoded (int): Number of images whose pixels were read.
        grey (int): Number of decoded images that are grey but stored as
            colours.
        like_masks (int): Number of decoded 8-bit images without a value from
            :data:`LABELS` to 254.
        sums (np.ndarray): Means and mean squares of each channel, summed over
            the decoded images, (2, C), colours in RGB order.
        crop (int): Shorter side of the largest crop, in pixels; 0 if there are
            no crops.
        pixels (int): Number of images to decode.
        seconds (float): Longest time for reading headers.
        wrong (list[str]): Images that a run cannot use, and why.
    """

    number: int
    left_out: Counter[str] = field(default_factory=Counter)
    headers: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    classes: Counter[str] = field(default_factory=Counter)
    names: Sequence[str] = ()
    labels: dict[int, str] = field(default_factory=dict)
    seen: dict[bytes, str] = field(default_factory=dict)
    decoded: int = 0
    grey: int = 0
    like_masks: int = 0
    sums: np.ndarray = field(default_factory=lambda: np.zeros((2, 0)))
    crop: int = 0
    pixels: int = PIXELS
    seconds: float = SECONDS
    wrong: list[str] = field(default_factory=list)

    @property
    def mean(self) -> np.ndarray:
        """np.ndarray: Mean of each channel, (C,); C is 0 without images."""
        return self.sums[0] / max(1, self.decoded)

    @property
    def std(self) -> np.ndarray:
        """np.ndarray: Standard deviation of each channel, (C,)."""
        squares = self.sums[1] / max(1, self.decoded)
        return np.sqrt(np.maximum(squares - self.mean**2, 0))

    def add_set(self, part: Any) -> None:
        """Count what a data set states, without reading its images."""
        self.left_out.update(getattr(part, 'left_out', {}))
        self.crop = max(self.crop, *_crops(part.pipeline.transforms), 0)
        classes = _classes(part)
        if classes:
            self.names = part.metainfo.get('classes') or ()
        for label, (name, number) in classes.items():
            self.classes[name] += number
            if number:
                self.labels[label] = name

    def add_file(
        self, info: dict, load: LoadImageFromFile
    ) -> tuple[Header, tuple[str, ...]]:
        """Count what the header of an image file states.

        Args:
            info (dict): The entry of the image in the data set.
            load (LoadImageFromFile): The loader of the set.

        Returns:
            tuple[Header, tuple[str, ...]]: The header, and phrases that say
            what stands out.
        """
        self.headers += 1
        path = info['img_path']
        check_regular(path)
        content = fileio.get(path, backend_args=load.backend_args)
        digest = hashlib.blake2b(content, digest_size=12).digest()
        label, found = str(info.get('gt_label')), []
        if digest in self.seen:
            found.append('equal to another')
        if self.seen.setdefault(digest, label) != label:
            found.append('equal to one of another class')
        ours = isinstance(load, LoadImage)  # or its subclass LoadBands
        header = load.header(content, path) if ours else read_header(content)
        kind = f'{header.format} {header.mode}'
        self.kinds[f'{kind} of {header.bits} bits'] += 1
        turns = load.color_type in TURNING
        size = header.shown if turns else header.size
        self.sizes.append(size)
        if problem := size_problem(path, size, info):
            self.wrong.append(problem)
        if turns and header.hides_turn and 'instances' in info:
            found.append(_UNCLEAR)
        return header, (*header.oddities, *found)

    def add_pixels(
        self, info: dict, load: LoadImageFromFile, header: Header
    ) -> None:
        """Count what the pixels of an image show, see :meth:`add_file`."""
        # The size in the entry is not passed on. If it is wrong, `add_file`
        # has already reported it, and the loader would raise an error here.
        img = load(dict(img_path=info['img_path']))['img']
        img = np.atleast_3d(img).astype(np.float64)
        between = (img >= LABELS) & (img < 255)
        self.like_masks += int(header.bits == 8 and not between.any())
        new = np.stack([img.mean((0, 1)), (img**2).mean((0, 1))])
        if new.shape[1] == 3:
            same = img == img[..., :1]
            self.grey += bool(header.channels >= 3 and same.all())
            if not isinstance(load, LoadBands):
                new = new[:, ::-1]  # MMCV loads BGR
        if self.sums.shape[1] in (0, new.shape[1]):
            self.decoded += 1
            self.sums = self.sums + new if self.sums.size else new

    def counts(self) -> dict[str, int]:
        """Return how many images stand out, by a phrase that says how."""
        small = sum(min(size) < self.crop for size in self.sizes)
        long = sum(max(size) > LONG * min(size) for size in self.sizes)
        counts = {
            'unreadable': len(self.unreadable),
            f'smaller than crops of {self.crop}': small,
            f'longer than {LONG} : 1': long,
            **self.odd,
        }
        return {phrase: number for phrase, number in counts.items() if number}

    def _share(self, phrase: str, number: int) -> str:
        """Write the number of images, out of those that were looked at."""
        if phrase != 'unreadable' or self.pixels >= self.headers:
            return f'{number} of {self.headers}'
        return f'at least {number} of {self.headers} ({self.pixels} decoded)'

    def cells(self) -> dict[str, str]:
        """Return the cells of this set in the table, by row name."""
        found = {'images': f'{self.number}'}
        if self.left_out:
            found['left out'] = counted(self.left_out)
        if self.headers < self.number:
            found['looked at'] = (
                f'{self.headers} (at most {MOST_HEADERS}, or as many '
                f'as {self.seconds:.2g} s allow)'
            )
        if self.kinds:
            found['formats'] = counted(self.kinds)
        if self.sizes:
            ordered = sorted(self.sizes, key=lambda size: size[0] * size[1])
            chosen = ordered[0], ordered[len(ordered) // 2], ordered[-1]
            names = 'smallest', 'median', 'largest'
            found['height x width'] = ', '.join(
                f'{name} {h} x {w}' for name, (h, w) in zip(names, chosen)
            )
        for phrase, number in self.counts().items():
            found[phrase] = self._share(phrase, number)
        if self.grey:
            found['grey, stored as colours'] = f'{self.grey} of {self.decoded}'
        if self.classes:
            names = listed(f'{k} {n}' for k, n in self.classes.items())
            found['classes'] = f'{len(self.classes)}: {names}'
        if self.decoded:
            found |= _numbers('', self.mean, self.std)
        return found

    def sentences(self) -> list[str]:
        """Return what stands out, one sentence each."""
        lines = [left_out_sentence(self.left_out)] if self.left_out else []
        for phrase, number in self.counts().items():
            few = 'smaller' in phrase and number < 0.1 * self.headers
            if few or phrase == TURNED:  # which is harmless
                continue
            hints = [_HINTS[phrase]] if phrase in _HINTS else []
            if phrase == 'unreadable':
                hints = [*map(printable, self.unreadable.values())]
                if rest := hints[NAMED:]:
                    hints[NAMED:] = [f'{len(rest)} more']
            elif phrase in self.examples:
                hints.insert(0, f'such as {self.examples[phrase]}')
            more = f' ({"; ".join(hints)})' if hints else ''
            lines.append(f'{self._share(phrase, number)} {phrase}{more}')
        if self.like_masks > 0.1 * self.decoded:
            lines.append(
                f'{self.like_masks} of {self.decoded} decoded images look '
                f'like masks, with no value from {LABELS} to 254: pass '
                'only the folder of the images'
            )
        empty = [name for name, n in self.classes.items() if not n]
        if empty:
            lines.append(f'no image of the class {listed(empty)}')
        return lines


def image_facts(
    dataset: Sized,
    pixels: int = PIXELS,
    seconds: float = SECONDS,
) -> ImageFacts:
    """Look at the images of a data set.

    The headers of at most 20 000 files are read, in random order. The set's
    loader also decodes some of these images.

    Args:
        dataset (Sized): An MMEngine data set, or a wrapper of data sets.
        pixels (int): Number of images to decode, the first in the random
            order. Files that are cut short are always decoded.
        seconds (float): Time limit for reading headers. It does not apply to
            the first ``pixels`` images.

    Returns:
        ImageFacts: The facts.
    """
    parts = list(members(dataset))
    facts = ImageFacts(sum(map(len, parts)), pixels=pixels, seconds=seconds)
    for part in parts:
        facts.add_set(part)
    ends = np.cumsum([len(part) for part in parts])
    order = np.random.default_rng(0).permutation(facts.number)
    end = time.monotonic() + seconds
    for number, place in enumerate(order[:MOST_HEADERS]):
        which = int(np.searchsorted(ends, place, side='right'))
        part = parts[which]
        info = part.get_data_info(int(place - ends[which] + len(part)))
        load = strict_loader(part)
        if load is None or 'img_path' not in info:
            continue
        path = printable(info['img_path'])
        try:
            header, oddities = facts.add_file(info, load)
            # The decoder may be able to read a file that is cut short.
            if number < pixels or not header.whole:
                facts.add_pixels(info, load, header)
            facts.odd.update(oddities)
            for phrase in oddities:
                facts.examples.setdefault(phrase, path)
        except Exception as error:  # each decoder has errors of its own
            problem = printable(error)
            *_, reason = problem.partition(f'{path}: ')
            if reason or path not in problem:
                problem = f'{path}: {reason or problem}'
            facts.unreadable[info['img_path']] = problem
            if part.test_mode or not _skips(part):
                facts.wrong.append(problem)
        if number >= pixels and time.monotonic() > end:
            break
    return facts


def _classes(part: Any) -> dict[int, tuple[str, int]]:
    """Return each label's name and number of images, which may be 0."""
    names = part.metainfo.get('classes') or ()
    number = len(part)
    if not 0 < number <= MOST_LABELS:
        return {}
    if 'gt_label' not in part.get_data_info(0):
        return {}
    found = Counter(dict.fromkeys(range(len(names)), 0))
    for index in range(number):
        label = part.get_data_info(index)['gt_label']
        if not isinstance(label, int | np.integer):
            return {}  # multi-label images
        found[int(label)] += 1
    return {
        label: (
            str(names[label]) if 0 <= label < len(names) else f'{label}',
            n,
        )
        for label, n in found.items()
    }


def _crops(steps: list) -> Iterator[int]:
    """Yield the shorter side of each crop in a pipeline, in pixels."""
    for step in steps:
        if isinstance(step, list | tuple):
            yield from _crops(step)
        elif isinstance(step, BaseTransform):
            yield from _crops(getattr(step, 'transforms', []))
            name = type(step).__name__
            if 'Crop' in name:
                side = getattr(step, 'crop_size', getattr(step, 'scale', 0))
                yield int(np.min(side))
        elif hasattr(step, 'transforms'):
            yield from _crops(step.transforms)


def _skips(part: Any) -> bool:
    """Return whether training on this set skips damaged images."""
    load = loader_of(part)
    return getattr(load, 'skip_unreadable', load.ignore_empty)


def images_section(
    sets: Mapping[str, ImageFacts],
    normalise: tuple[Sequence[float], Sequence[float]] | None = None,
    num_classes: int | None = None,
) -> Section:
    """Compare the images of data sets.

    Args:
        sets (Mapping[str, ImageFacts]): Facts about each set, by its name.
        normalise (tuple[Sequence[float], Sequence[float]], optional): Mean
            and std with which the model normalises; colours in RGB order.
        num_classes (int, optional): Number of classes of the classifier.

    Returns:
        Section: A table with a column for each set, and what stands out.
    """
    section = Section('images', ['', *sets])
    cells = [facts.cells() for facts in sets.values()]
    for name in dict.fromkeys(name for part in cells for name in part):
        section.rows.append([name, *(part.get(name, '') for part in cells)])
    for role, facts in sets.items():
        section.odd += [f'{role}: {line}' for line in facts.sentences()]
        if facts.wrong:
            section.wrong.append(
                f'{role}: {len(facts.wrong)} of {facts.headers} images cannot '
                f'be used: {listed(facts.wrong, 2)}'
            )
        foreign = [
            label
            for label in facts.labels
            if num_classes is not None and not 0 <= label < num_classes
        ]
        if foreign:
            section.wrong.append(
                f'{role}: images have the labels {listed(foreign)}, but '
                f'the head has {num_classes} classes, numbered from 0: '
                'correct model.head.num_classes, or the labels in the list of '
                'images (ann_file), which must count from 0'
            )
    section.odd += _unlike_known(sets)
    section.wrong += _other_classes(sets)
    if normalise is not None:
        shown = _numbers(' of the config', *normalise)
        section.rows += [[k, *[v] * len(sets)] for k, v in shown.items()]
        section.odd += _unlike(sets, *normalise)
    return section


def _other_classes(sets: Mapping[str, ImageFacts]) -> list[str]:
    """Say where classes of val or test differ from those of train or bank."""
    lines = []
    for role in ('val', 'test'):
        for other in ('train', f'{role} bank'):
            if {role, other} <= sets.keys():
                names = sets[other].names, sets[role].names
                try:
                    check_same_classes(*names, (other, role))
                except ValueError as error:
                    lines.append(f'{error}')
    return lines


def _unlike_known(sets: Mapping[str, ImageFacts]) -> list[str]:
    """Say how many val or test images are in the training set or bank.

    Also say which classes only one of the two sets has.
    """
    lines = []
    for role, facts in sets.items():
        if role not in ('val', 'test'):
            continue
        known = {'the training set': 'train', 'the bank': f'{role} bank'}
        for name, other in known.items():
            if (others := sets.get(other)) is None:
                continue
            if shared := len(facts.seen.keys() & others.seen.keys()):
                lines.append(f'{role}: {shared} images are also in {name}')
            missing = sorted(facts.labels.keys() - others.labels.keys())
            if others.labels and missing:
                labels = listed(facts.labels[label] for label in missing)
                lines.append(
                    f'{role}: no image of {name} has the class {labels}'
                )
            absent = sorted(others.labels.keys() - facts.labels.keys())
            if facts.labels and absent and not (facts.names and others.names):
                lines.append(
                    f'{role}: no image has the labels {listed(absent)} of '
                    f'{name}. At least one of the two sets has no class '
                    'names: make sure that both number the classes alike'
                )
    return lines


def _numbers(
    of: str, mean: Sequence[float], std: Sequence[float]
) -> dict[str, str]:
    order = ', RGB' if len(mean) == 3 else ''
    return {
        f'{name}{of}{order}': ', '.join(f'{x:.4g}' for x in numbers)
        for name, numbers in (('mean', mean), ('std', std))
    }


def _unlike(
    sets: Mapping[str, ImageFacts],
    mean: Sequence[float],
    std: Sequence[float],
) -> list[str]:
    """Say which sets have a mean or std far from the model's."""
    lines = []
    for role, facts in sets.items():
        if facts.mean.shape != np.shape(mean):
            continue
        shift = np.abs(facts.mean - mean) / std
        ratio = facts.std / std
        # A ratio of 0.5 is normal: timm's ViTs normalise with a std of 0.5,
        # and photographs have about half of that.
        if shift.max() > 1 or not 0.4 < ratio.mean() < 2.5:
            found = _numbers('', facts.mean, facts.std).items()
            lines.append(
                f'{role}: the images have {"; ".join(map(" ".join, found))}, '
                'far from the values in model.data_preprocessor'
            )
    return lines
