# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import logging
from collections.abc import Sequence

import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmengine.fileio import BaseStorageBackend, LocalBackend, get_file_backend
from mmengine.logging import print_log
from mmpretrain.datasets import CustomDataset
from mmpretrain.datasets.base_dataset import expanduser
from mmpretrain.datasets.custom import find_folders, get_samples

from mmmoca.files import outside
from mmmoca.messages import listed, shown
from mmmoca.registry import DATASETS

from .listing import FolderListing
from .loading import LoadImage

__all__ = ['ImageFolder']


@DATASETS.register_module()
class ImageFolder(CustomDataset):
    """A folder of images, sorted into class folders or not at all.

    With ``with_label=True``, each folder directly under the root is a class
    (in alphabetical order) and holds its images at any depth. With
    ``with_label=False``, every image at any depth below the root is taken,
    the root itself included. Hidden files and folders are left out, links are
    followed, though not in circles, and the case of an extension does not
    matter. Of an animation the first frame is taken.

    The folder is checked when the data set is built: at least one image has
    to decode with the pipeline's own loader. In ``test_mode`` an image that
    the pipeline skips is an error that names the file.

    Args:
        data_root: The folder; ``~`` is understood.
        data_prefix: Sub-folder of ``data_root``, if any.
        ann_file: Optional list of images, one a line, each followed by its
            label if ``with_label``; see MMPreTrain's ``CustomDataset``.
        with_label: Whether folders (or the list) give labels.
        extensions: Endings of the files to take.
        **kwargs: Further arguments of ``CustomDataset``: ``pipeline``,
            ``test_mode``, ``indices``, ``lazy_init``, ...

    Raises:
        FileNotFoundError: At build time, if the folder does not exist or
            holds no file with one of the extensions.
        ValueError: At build time, if ``ann_file`` names an image that is not
            below ``data_root`` and ``data_prefix``.
        OSError: At build time, if none of its images can be decoded; later,
            in ``test_mode``, for an image that cannot be decoded.
        ValueError: At build time, if the images have 16 bits a channel and
            the pipeline's loader reads 8.
    """

    # Far more files than a readable folder needs, still checked in seconds.
    MAX_PROBES = 500
    # A few 16-bit files among many others are no mistake.
    DEPTH_PROBES = 5

    def __init__(
        self,
        data_root: str = '',
        data_prefix: str | dict = '',
        ann_file: str = '',
        with_label: bool = True,
        extensions: Sequence[str] = (
            '.bmp',
            '.gif',
            '.jpeg',
            '.jpg',
            '.pgm',
            '.png',
            '.ppm',
            '.tif',
            '.tiff',
            '.webp',
        ),
        **kwargs,
    ) -> None:
        super().__init__(
            data_root=expanduser(data_root),
            data_prefix=data_prefix,
            ann_file=ann_file,
            with_label=with_label,
            extensions=extensions,
            **kwargs,
        )

    def load_data_list(self) -> list[dict]:
        """Find the images and check that they can be read.

        Returns:
            One dict an image: ``img_path`` and, with labels, ``gt_label``.
        """
        root = self.img_prefix
        if not get_file_backend(root, enable_singleton=True).isdir(root):
            raise FileNotFoundError(
                f'no folder {self._searched()}. Set data_root (and '
                'data_prefix, if any) to the folder that holds the images'
            )
        data_list = super().load_data_list()
        if self.ann_file:
            self._check_inside(data_list)
        self._check_readable(data_list)
        return data_list

    def _check_inside(self, data_list: list[dict]) -> None:
        """Refuse a list that names images of other folders."""
        root = self.img_prefix
        beyond = outside(root, [info['img_path'] for info in data_list])
        if beyond:
            raise ValueError(
                f'{len(beyond)} images of {self.ann_file} lead out of {root} '
                f'({listed(beyond, 3)}): set data_root to a folder that holds '
                "them all, '/' for absolute paths"
            )

    def _searched(self) -> str:
        """Where and what to look for, for messages."""
        extensions = ', '.join(sorted(self.extensions))
        return f'{self.img_prefix!r} (accepted extensions: {extensions})'

    def _find_samples(self) -> list:
        root, classes = self.img_prefix, None
        backend = self._backend()
        if self.with_label:
            names, classes = find_folders(root, backend)
            if self.CLASSES is None:
                self._metainfo['classes'] = tuple(names)
            if len(self.CLASSES) != len(names):
                raise ValueError(
                    f'metainfo names {len(self.CLASSES)} classes, but '
                    f'{root!r} has {len(names)} folders'
                )
            self.folder_to_idx = classes
        samples, empty = get_samples(
            root, classes, self.is_valid_file, backend
        )
        if not samples:
            raise FileNotFoundError(
                f'no image in {self._searched()}. {self._advice()}'
            )
        if empty:
            print_log(
                f'no image in the folders {", ".join(sorted(empty))} of '
                f'{self._searched()}',
                logger='current',
                level=logging.WARNING,
            )
        return samples

    def _backend(self) -> BaseStorageBackend:
        backend = get_file_backend(self.img_prefix, enable_singleton=True)
        local = isinstance(backend, LocalBackend)
        return FolderListing() if local else backend

    def _advice(self) -> str:
        if not self.with_label:
            return (
                'Set data_root to the folder that holds the images, or name '
                'their extension in extensions'
            )
        root = self.img_prefix
        files = self._backend().list_dir_or_file(root, list_dir=False)
        if any(self.is_valid_file(file) for file in files):
            return (
                'Its images lie in no class folder: write with_label=False, '
                'or sort them into one folder a class'
            )
        return (
            'Expected one folder a class, <data_root>/<class>/<image>; '
            'write with_label=False for images without labels'
        )

    def _check_readable(self, data_list: list[dict]) -> None:
        """Raise unless one of some images, spread evenly, decodes."""
        if not data_list:
            raise FileNotFoundError(
                f'{self.ann_file!r} lists no image. Write one path a line, '
                f'relative to {self._searched()}'
            )
        loader = next(
            (
                transform
                for transform in self.pipeline.transforms
                if isinstance(transform, LoadImageFromFile)
            ),
            # One that is not known may read any depth.
            LoadImage(cut_to_8_bits=True),
        )
        if not isinstance(loader, LoadImage):
            loader = LoadImage(
                color_type=loader.color_type,
                imdecode_backend=loader.imdecode_backend,
                backend_args=loader.backend_args,
            )
        number = min(len(data_list), self.MAX_PROBES)
        for i in np.linspace(0, len(data_list) - 1, number).astype(int):
            try:
                loader.read(data_list[i]['img_path'])
            except OSError as error:
                last = error
            else:
                self._check_depth(data_list, loader)
                return
        raise OSError(
            f'none of the {number} files tried of {len(data_list)} in '
            f'{self._searched()} is a readable image. Replace the damaged '
            f'files or set data_root to another folder. Last error: {last}'
        ) from last

    def _check_depth(self, data_list: list[dict], loader: LoadImage) -> None:
        """Raise if all of some images would lose bits."""
        keeps = 'unchanged', 'tifffile'
        if loader.cut_to_8_bits or (
            loader.color_type in keeps or loader.imdecode_backend in keeps
        ):
            return
        whole = LoadImage(
            color_type='unchanged', backend_args=loader.backend_args
        )
        number = min(len(data_list), self.DEPTH_PROBES)
        for i in np.linspace(0, len(data_list) - 1, number).astype(int):
            path = data_list[i]['img_path']
            try:
                depth = whole.read(path).dtype
            except OSError:  # the loader will say so
                return
            if depth == np.uint8:
                return
        raise ValueError(
            f'{shown(path)} and the other images tried have more than 8 bits '
            f'a channel, but color_type={loader.color_type!r} of the loader '
            'reads 8: write mmmoca.LoadBands(channels=...), or if 8 suffice, '
            'mmmoca.LoadImage(cut_to_8_bits=True)'
        )

    def prepare_data(self, idx: int) -> dict | None:
        """Run the pipeline on one image.

        Args:
            idx: Index of the image.

        Returns:
            The pipeline's result; None in training if it skipped the image.

        Raises:
            OSError: In ``test_mode``, if the pipeline skipped the image.
        """
        data = super().prepare_data(idx)
        if data is None and self.test_mode:
            path = self.get_data_info(idx)['img_path']
            raise OSError(
                f'cannot read the image {shown(path)}: evaluation skips '
                'nothing, so replace the file or remove it from the data set'
            )
        return data
