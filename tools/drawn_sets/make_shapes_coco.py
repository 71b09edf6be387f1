# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw a small instance segmentation set in COCO's format.

Rotated shapes of four classes overlap on noisy backgrounds. The annotations
have every form that COCO's have: polygons for shapes that are fully visible,
run lengths (compressed and not) for shapes that others partly cover, crowds,
and images without objects.
"""

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

try:
    from pycocotools import mask as coco_mask
except ImportError:
    coco_mask = None  # --help works without it

from _drawn_images import cross, regular, rotation
from _drawn_set import SPLITS, check_numbers, drawn_set, run, set_parser

# Stored in meta.json. Increase it whenever the same arguments give different
# images.
FORMAT = 2
MIN_SIZE = 64
# Every tenth image is empty, another tenth has a crowd.
PERIOD, EMPTY, CROWD = 10, 7, 3
# Smallest visible share of an object.
MIN_VISIBLE = 0.4


# Outlines (corners, 2) of shapes in the unit circle.
_OUTLINES: dict[str, np.ndarray] = {
    'circle': regular(40),
    'cross': cross(0.35),
    'square': regular(4),
    'triangle': regular(3),
}
CLASSES = tuple(_OUTLINES)


@dataclass
class _Object:
    """One shape, or a crowd of shapes.

    Attributes:
        label (int): Index into :data:`CLASSES`.
        visible (np.ndarray): Mask of its visible pixels, (H, W), bool.
        outline (np.ndarray, optional): Its corners, (corners, 2); None for a
            crowd.
    """

    label: int
    visible: np.ndarray
    outline: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.area = self.visible.sum()

    def annotation(self, number: int) -> dict:
        """Return the annotation in COCO's format.

        ``number`` is the index of the object in its image. Run lengths are
        compressed if it is even, but those of a crowd never are.
        """
        rle = coco_mask.encode(np.asfortranarray(self.visible, np.uint8))
        crowd = self.outline is None
        whole = self.visible.sum() == self.area
        if whole and not crowd:
            shown = [self.outline.ravel().tolist()]
        elif crowd or number % 2:
            shown = dict(size=rle['size'], counts=_run_lengths(self.visible))
        else:
            shown = dict(size=rle['size'], counts=rle['counts'].decode())
        return dict(
            category_id=self.label + 1,
            iscrowd=int(crowd),
            segmentation=shown,
            area=float(coco_mask.area(rle)),
            bbox=coco_mask.toBbox(rle).tolist(),
        )


class _Scene:
    """An image and its objects, from the back to the front.

    Args:
        index (int): Number of the image. It decides whether the image is empty
            or has a crowd.
        rng (np.random.Generator): Source of all randomness.
        size (int): The longer side in pixels.
    """

    def __init__(
        self, index: int, rng: np.random.Generator, size: int
    ) -> None:
        self.rng = rng
        sides = [size, round(size * rng.uniform(0.7, 1))]
        rng.shuffle(sides)
        self.height, self.width = sides
        low = rng.uniform(60, 190, (4, 5, 3))
        self.image = cv2.resize(
            low, (self.width, self.height), interpolation=cv2.INTER_CUBIC
        )
        self.objects: list[_Object] = []
        if index % PERIOD == EMPTY:
            return
        if index % PERIOD == CROWD:
            self._add_crowd()
        for _ in range(rng.integers(1, 5)):
            self._add_object()

    def _shape(
        self, label: int, radius: float, centre: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a shape that is turned at random and cut at the border.

        Args:
            label (int): Index into :data:`CLASSES`.
            radius (float): In pixels.
            centre (np.ndarray): (2,), x before y, in pixels.

        Returns:
            tuple[np.ndarray, np.ndarray]: Its corners, (corners, 2), and its
            mask, (H, W), bool.
        """
        turn = rotation(self.rng.uniform(0, 2 * math.pi))
        outline = _OUTLINES[CLASSES[label]] @ turn * radius + centre
        outline = outline.clip(0, (self.width, self.height)).round(2)
        corners = [outline.ravel().tolist()]
        masks = coco_mask.frPyObjects(corners, self.height, self.width)
        return outline, coco_mask.decode(masks)[..., 0].astype(bool)

    def _paint(self, mask: np.ndarray) -> None:
        colour = self.rng.uniform(0, 255, 3)
        # A grey shape on a grey background would be invisible.
        colour[self.rng.integers(3)] = self.rng.choice([0, 255])
        self.image[mask] = colour

    def _centre(self, margin: float) -> np.ndarray:
        size = np.array([self.width, self.height])
        return self.rng.uniform(margin, size - margin)

    def _add_object(self) -> None:
        """Draw a shape in front of all others, if there is room for it."""
        label = int(self.rng.integers(len(CLASSES)))
        radius = min(self.height, self.width) * self.rng.uniform(0.12, 0.28)
        for _ in range(20):
            # The border of the image cuts some shapes.
            centre = self._centre(radius * self.rng.uniform(0.7, 1))
            outline, mask = self._shape(label, radius, centre)
            if all(
                (other.visible & ~mask).sum() >= MIN_VISIBLE * other.area
                for other in self.objects
            ):
                self._paint(mask)
                for other in self.objects:
                    other.visible &= ~mask
                self.objects.append(_Object(label, mask, outline))
                return

    def _add_crowd(self) -> None:
        """Draw many small shapes of a class, with one annotation for all."""
        label = int(self.rng.integers(len(CLASSES)))
        side = min(self.height, self.width)
        centre = self._centre(side * 0.2)
        visible = np.zeros((self.height, self.width), bool)
        for _ in range(10):
            offset = self.rng.uniform(-0.15, 0.15, 2) * side
            _, mask = self._shape(label, side * 0.05, centre + offset)
            self._paint(mask)
            visible |= mask
        self.objects.append(_Object(label, visible))

    def mask(self) -> bytes:
        """Return a PNG of each pixel's class, counted from 1; 0 for none."""
        classes = np.zeros((self.height, self.width), np.uint8)
        for one in self.objects:
            classes[one.visible] = one.label + 1
        return cv2.imencode('.png', classes)[1].tobytes()

    def jpeg(self) -> bytes:
        """Return the image with noise, as the content of a JPEG file."""
        noise = self.rng.normal(0, 6, self.image.shape)
        image = np.clip(self.image + noise, 0, 255).astype(np.uint8)
        quality = (cv2.IMWRITE_JPEG_QUALITY, 95)
        return cv2.imencode('.jpg', image, quality)[1].tobytes()


def _run_lengths(mask: np.ndarray) -> list[int]:
    """Return the lengths of runs of 0 and 1 in turn, down the columns."""
    runs = itertools.groupby(mask.ravel('F').tolist())
    lengths = [len([*run]) for _, run in runs]
    return [0, *lengths] if mask[0, 0] else lengths


def _write_split(root: Path, split: int, count: int, size: int, seed: int):
    name = SPLITS[split]
    images, annotations = [], []
    masks = root / 'masks' / name
    for folder in (root / name, masks):
        folder.mkdir(parents=True)
    for index in range(count):
        rng = np.random.default_rng((seed, split, index))
        scene = _Scene(index, rng, size)
        file_name = f'{index:06d}.jpg'
        (root / name / file_name).write_bytes(scene.jpeg())
        (masks / f'{index:06d}.png').write_bytes(scene.mask())
        size_of_it = dict(height=scene.height, width=scene.width)
        images.append(dict(id=index + 1, file_name=file_name, **size_of_it))
        for number, one in enumerate(scene.objects):
            ids = dict(id=len(annotations) + 1, image_id=index + 1)
            annotations.append(ids | one.annotation(number))
    categories = [
        dict(id=number, name=name, supercategory='shape')
        for number, name in enumerate(CLASSES, start=1)
    ]
    content = dict(
        info=dict(description='drawn shapes'),
        images=images,
        annotations=annotations,
        categories=categories,
    )
    (root / 'annotations' / f'{name}.json').write_text(json.dumps(content))


def make_shapes(
    out: str | Path,
    train: int = 200,
    val: int = 50,
    size: int = 192,
    seed: int = 0,
) -> bool:
    """Draw the set.

    Writes ``out/{train,val}/<number>.jpg``,
    ``out/annotations/{train,val}.json``,
    ``out/masks/{train,val}/<number>.png`` (for semantic segmentation), and
    ``out/meta.json``. The folder appears whole or not at all; one that already
    holds this set is left alone.

    Args:
        out (str | Path): Folder to make.
        train (int): Number of training images, 1 or more.
        val (int): Number of validation images, 1 or more.
        size (int): Longer side of the images in pixels, at least 64.
        seed (int): Seed, 0 or more.

    Returns:
        bool: True if the set was drawn, False if it was already there.

    Raises:
        ImportError: If pycocotools is missing.
        ValueError: If a number is below its minimum.
        FileExistsError: If ``out`` holds anything other than this set.
    """
    if coco_mask is None:
        raise ImportError(
            "COCO's masks need pycocotools: pip install pycocotools"
        )
    check_numbers(
        train=(train, 1), val=(val, 1), size=(size, MIN_SIZE), seed=(seed, 0)
    )
    numbers = dict(format=FORMAT, train=train, val=val, size=size, seed=seed)
    with drawn_set(out, numbers) as root:
        if root is None:
            return False
        (root / 'annotations').mkdir()
        for split, count in enumerate((train, val)):
            _write_split(root, split, count, size, seed)
    return True


def main() -> None:
    """Draw the set that the command line asks for."""
    sizes = 200, 50, 192, 'longer side in pixels'
    run(set_parser(__doc__.splitlines()[0], *sizes), make_shapes)


if __name__ == '__main__':
    main()
