# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import io
from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from mmengine import fileio
from mmengine.fileio import BaseStorageBackend, LocalBackend, get_file_backend
from mmpretrain.datasets.custom import find_folders

from mmmoca.files import outside
from mmmoca.messages import listed
from mmmoca.registry import DATASETS

from .image_set import ImageSet
from .listing import FolderListing
from .samples import Samples, Texts, sort_texts

__all__ = ['ImageFolder']


@DATASETS.register_module()
class ImageFolder(ImageSet):
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
        OSError: At build time, if none of its images can be decoded; later,
            in ``test_mode``, for an image that cannot be decoded.
        ValueError: At build time, for a line of the list without a label, or
            of an image that is not below ``data_root`` and ``data_prefix``;
            or see :class:`ImageSet`.
    """

    def find_samples(self) -> Samples:
        """List the folder, or read the list."""
        root = self.img_prefix
        if not get_file_backend(root, enable_singleton=True).isdir(root):
            raise FileNotFoundError(
                f'no folder {self._searched()}. Set data_root (and '
                'data_prefix, if any) to the folder that holds the images'
            )
        names, labels = self._read_list() if self.ann_file else self._list()
        paths = _Paths(root, names)
        if self.ann_file and (beyond := outside(root, paths)):
            raise ValueError(
                f'{len(beyond)} images of {self.ann_file} lead out of {root} '
                f'({listed(beyond, 3)}): set data_root to a folder that holds '
                "them all, '/' for absolute paths"
            )
        return Samples(paths, labels)

    def _read_list(self) -> tuple[Texts, np.ndarray | None]:
        """The images of ``ann_file`` and their labels."""
        names, labels = Texts(), array('q')
        # Lines are taken from one block of bytes.
        for line in io.BytesIO(fileio.get(self.ann_file)):
            name = line.decode().rstrip('\r\n')
            if self.with_label:
                name, _, label = name.strip().rpartition(' ')
                try:
                    labels.append(int(label))
                except ValueError:
                    raise ValueError(
                        f'{self.ann_file!r} has the line {line!r}: write '
                        '"<path> <number of its class>", or with_label=False'
                    ) from None
            names.extend([name])
        if not len(names):
            raise FileNotFoundError(
                f'{self.ann_file!r} lists no image. Write one path a line, '
                f'relative to {self._searched()}'
            )
        return names, np.asarray(labels) if self.with_label else None

    def _list(self) -> tuple[Texts, np.ndarray | None]:
        """The images that lie in the folder, sorted, and their classes."""
        root, backend = self.img_prefix, self._backend()
        names, labels = Texts(), None
        if not self.with_label:
            names.extend(self._sorted(backend, root))
        else:
            folders = self._class_folders(backend)
            counts = []
            for folder in folders:
                before = len(names)
                files = self._sorted(backend, backend.join_path(root, folder))
                names.extend(backend.join_path(folder, file) for file in files)
                counts.append(len(names) - before)
            labels = np.repeat(np.arange(len(folders)), counts)
        if not len(names):
            raise FileNotFoundError(
                f'no image in {self._searched()}: write '
                + (
                    'with_label=False unless there is one folder a class, '
                    '<data_root>/<class>/<image>'
                    if self.with_label
                    else 'the folder in data_root, or their extension in '
                    'extensions'
                )
            )
        return names, labels

    def _class_folders(self, backend: BaseStorageBackend) -> list[str]:
        names, self.folder_to_idx = find_folders(self.img_prefix, backend)
        if self.CLASSES is None:
            self._metainfo['classes'] = tuple(names)
        if len(self.CLASSES) != len(names):
            raise ValueError(
                f'metainfo names {len(self.CLASSES)} classes, but '
                f'{self.img_prefix!r} has {len(names)} folders'
            )
        return names

    def _sorted(
        self, backend: BaseStorageBackend, folder: str
    ) -> Iterator[str]:
        """Names of the images at any depth of a folder."""
        files = backend.list_dir_or_file(
            folder, list_dir=False, recursive=True
        )
        return sort_texts(filter(self.is_valid_file, files))

    def _backend(self) -> BaseStorageBackend:
        backend = get_file_backend(self.img_prefix, enable_singleton=True)
        local = isinstance(backend, LocalBackend)
        return FolderListing() if local else backend


class _Paths(Sequence):
    """Paths of files below a folder, each put together when asked for."""

    def __init__(self, root: str, names: Texts) -> None:
        self._root = root
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> str:
        return fileio.join_path(self._root, self._names[index])
