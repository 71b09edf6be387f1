# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The base class of image sets, wherever their images are stored."""

import copy
import pickle
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence, Sized

import numpy as np
from mmcv.transforms import BaseTransform, LoadImageFromFile
from mmengine.dataset import BaseDataset
from mmpretrain.datasets import CustomDataset
from mmpretrain.datasets.base_dataset import expanduser

from mmmoca.messages import listed, printable, warn

from .file_extensions import (
    EXTENSIONS,
    counted,
    left_out_sentence,
    ways_to_read,
)
from .loading import BACKENDS, COLOR_TYPES, LoadImage
from .seeding import evenly_spaced_rows, members

# Number of files, evenly spaced, that the loader tries when a set is built. If
# it can use none of them, an error is raised.
PROBES = 20


class ImageSet(CustomDataset):
    """Base class of image sets, which are checked when they are built.

    A subclass yields a dict for each image. The dicts are serialised as in
    MMEngine, but one at a time, so that a list of millions of dicts is never
    in memory; ``data_list`` reads them back. Wherever an image is stored, the
    pipeline's loader reads its path or URL through MMEngine's file backends.

    Args:
        data_root (str): Where the images are; ``~`` is expanded.
        *args: Further arguments of ``CustomDataset``.
        extensions (str | Sequence[str]): Ending of the files to include, or
            several endings; '' includes all files.
        **kwargs: Further arguments of ``CustomDataset``: ``data_prefix``,
            ``with_label`` (True by default), ``pipeline``, ``test_mode``,
            ``indices``, ``lazy_init``, ...

    Raises:
        FileNotFoundError: At build time, if there is no image.
        OSError: At build time, if the pipeline's loader can read none of the
            images tried; later, in ``test_mode``, for an image that it cannot
            read.
        ValueError: At build time, for an image without a label; if the images
            have 16 bits per channel and the pipeline's loader reads 8; or if
            ``metainfo`` contradicts the names of the classes, see
            :meth:`name_classes`.
    """

    def __init__(
        self,
        data_root: str = '',
        *args,
        extensions: str | Sequence[str] = EXTENSIONS,
        **kwargs,
    ) -> None:
        kwargs['serialize_data'] = True
        if isinstance(extensions, str):
            # mmpretrain would turn a string into a set of its letters.
            extensions = [extensions]
        self.left_out: Counter[str] = Counter()
        super().__init__(
            expanduser(data_root), *args, extensions=extensions, **kwargs
        )

    def find_images(self) -> Iterator[dict]:
        """Yield a dict per image: ``img_path``, and ``gt_label`` if known."""
        raise NotImplementedError

    def refuse_list(self) -> None:
        """Raise if there is an ``ann_file``: only image folders use one."""
        if self.ann_file:
            raise ValueError(
                f'{type(self).__name__} does not read ann_file: use '
                'mmmoca.ImageFolder, or choose images with indices=[...]'
            )

    def name_classes(self, names: Sequence[str]) -> None:
        """Name the classes as the source of the images does.

        ``metainfo`` may give other names, such as 'tabby' for the folder
        'n02123045', but not the same names in another order.

        Args:
            names (Sequence[str]): The names, in the order of the labels.

        Raises:
            ValueError: If ``metainfo`` has more or fewer classes, or gives one
                class the name of another.
        """
        given = self.CLASSES
        if given is None:
            given = self._metainfo['classes'] = tuple(names)
        found = f'{self.img_prefix!r} has {len(names)}: {listed(names)}'
        if len(given) != len(names):
            raise ValueError(
                f'classes: {len(given)} names are given, but {found}'
            )
        known = {*names}
        for own, name in zip(given, names):
            if own != name and own in known:
                raise ValueError(
                    f'classes: the class {name!r} is called {own!r}, which is '
                    f'the name of another class ({found}): write the classes '
                    'in this order, or leave them out'
                )

    def full_init(self) -> None:
        """Find the images and check that they can be read."""
        if not self._fully_initialized:
            super().full_init()
            self._check_readable()

    def load_data_list(self) -> Iterator[dict] | list[dict]:
        """Find the images; return a list only if ``indices`` needs one."""
        images = self.find_images()
        return images if self._indices is None else list(images)

    def _serialize_data(self) -> tuple[np.ndarray, np.ndarray]:
        content, ends = bytearray(), array('q')
        for image in self.data_list:
            label = image.pop('gt_label', None)
            if self.with_label:
                if label is None:
                    path = printable(image['img_path'])
                    raise ValueError(
                        f'{path} has no label: add a class number in KEY.cls '
                        'or KEY.json (shards), set label_column (Hugging '
                        'Face), or set with_label=False'
                    )
                image['gt_label'] = label
            content += pickle.dumps(image, protocol=4)
            ends.append(len(content))
        self.data_list = _Infos(self)
        if not ends and self.ann_file:
            raise FileNotFoundError(
                f'the list {printable(self.ann_file)} names no image'
            )
        if not ends:
            extensions = ', '.join(sorted(self.extensions))
            others = counted(self.left_out) or 'none'
            advice = (
                'With labels, each class has a folder of images, '
                '<data_root>/<class>/<image>. Without labels, set '
                'with_label=False'
            )
            if ways := ways_to_read(self.left_out):
                advice = f'To read these files, {", or ".join(ways)}'
            raise FileNotFoundError(
                f'no image in {self.img_prefix!r} (accepted extensions: '
                f'{extensions}; other files: {others}). {advice}'
            )
        if self.left_out:
            place = printable(self.img_prefix)
            text = f'{place}: {left_out_sentence(self.left_out)}'
            warn(text)
        return np.frombuffer(content, np.uint8), np.frombuffer(ends, np.int64)

    def get_subset(self, indices: Sequence[int] | int) -> 'ImageSet':
        """Return a part of the set, with a ``data_list`` for this part."""
        part = super().get_subset(indices)
        part.data_list = _Infos(part)
        return part

    def _check_readable(self) -> None:
        """Try some images, evenly spaced; raise if none can be used."""
        problem = None
        for _, problem in tried_images(self):
            if problem is None:
                return
        if problem is not None:
            kind = ValueError if isinstance(problem, ValueError) else OSError
            raise kind(
                f'none of the {min(len(self), PROBES)} images tried, '
                f'out of {len(self)} in {self.img_prefix!r}, can be used. The '
                f'last error was: {printable(problem)}'
            ) from problem

    def prepare_data(self, idx: int) -> dict | None:
        """Run the pipeline on one image.

        Args:
            idx (int): Index of the image.

        Returns:
            The pipeline's result; None in training if it skipped the image.

        Raises:
            OSError: In ``test_mode``, if the pipeline skipped the image.
        """
        data = super().prepare_data(idx)
        if data is None and self.test_mode:
            path = self.get_data_info(idx)['img_path']
            raise OSError(
                f'cannot read {printable(path)}, which an evaluation must not '
                'skip'
            )
        return data


class _Infos(Sequence):
    """The entries of an image set, read from its serialised form."""

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        return self.images.get_data_info(range(len(self))[index])


def judge_images(dataset: Sized) -> None:
    """Change a data set so that each image is checked when it is decoded.

    MMCV's loader keeps the upper 8 of 16 bits, which makes 12-bit images
    black, so :class:`LoadImage` replaces it. Then images are tried until one
    can be used. If the loader is :class:`LoadBands`, it remembers the bit
    depth of this image, so that all workers expect the same depth.

    Args:
        dataset (Sized): The data set, from any package, or a wrapper of data
            sets. It is changed in place.
    """
    for part in members(dataset):
        part.pipeline.transforms[:] = map(judging, part.pipeline.transforms)
        all(problem for _, problem in tried_images(part))


def tried_images(
    dataset: BaseDataset,
) -> Iterator[tuple[str, Exception | None]]:
    """Try the loader of a set's pipeline on some images, evenly spaced.

    Args:
        dataset (BaseDataset): The set. If its pipeline has no loader, nothing
            is tried.

    Yields:
        tuple[str, Exception | None]: A path, and the error that says why the
        image cannot be used; None if it can be used.
    """
    load = strict_loader(dataset)
    for index in evenly_spaced_rows(PROBES if load else 0, len(dataset)):
        info = dataset.get_data_info(index)
        problem = None
        try:
            load(info)
        except Exception as error:  # each decoder has errors of its own
            problem = error
        yield info['img_path'], problem


def loader_of(dataset: BaseDataset) -> LoadImageFromFile | None:
    """Return the transform that loads the images of a set, or None."""
    steps = dataset.pipeline.transforms
    return next((s for s in steps if isinstance(s, LoadImageFromFile)), None)


def strict_loader(dataset: BaseDataset) -> LoadImageFromFile | None:
    """Return a copy of a set's loader that skips nothing, or None."""
    load = loader_of(dataset)
    if load is not None:
        load = copy.copy(load)
        load.ignore_empty = load.skip_unreadable = False  # MMCV's, and ours
    return load


def judging(transform: BaseTransform) -> BaseTransform:
    """Replace MMCV's loader with ours; return other transforms unchanged.

    MMCV's loader does not check the bit depth of an image. Configs still name
    MMCV's loader, because MMPreTrain's inferencers replace a loader of this
    name with their own.
    """
    if (
        type(transform) is not LoadImageFromFile
        or transform.imdecode_backend not in BACKENDS
        or transform.color_type not in COLOR_TYPES
    ):
        return transform
    names = 'color_type', 'imdecode_backend', 'to_float32', 'backend_args'
    options = {name: getattr(transform, name) for name in names}
    loader = LoadImage(**options, skip_unreadable=transform.ignore_empty)
    # MMCV's older name for the arguments of a file backend.
    loader.file_client_args = transform.file_client_args
    return loader
