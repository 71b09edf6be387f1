# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mmmoca.files import outside, read_lines
from mmmoca.messages import printable
from mmmoca.registry import DATASETS

from .file_extensions import with_extension
from .image_set import ImageSet

# Folders that operating systems make, such as for thumbnails and metadata.
_OF_MACHINES = {
    '@eaDir',
    '#recycle',
    '__MACOSX',
    '$RECYCLE.BIN',
    'System Volume Information',
    'lost+found',
}


@DATASETS.register_module()
class ImageFolder(ImageSet):
    """A folder of images, with or without class folders.

    With ``with_label=True``, each folder directly under the root is a class
    (in alphabetical order) and contains its images at any depth. With
    ``with_label=False``, all images in the root or at any depth below it are
    used. Hidden files and folders are left out. Links are followed, but not in
    circles. The case of an extension does not matter. The first frame of an
    animation is used.

    When the data set is built, the pipeline's loader tries some of the images,
    and has to decode at least one. In ``test_mode``, an image that the
    pipeline skips raises an error that names the file.

    Args:
        data_root (str): The folder; ``~`` is expanded.
        data_prefix (str): Sub-folder of ``data_root``, if any.
        ann_file (str): Optional list of images, one per line, each followed by
            its label if ``with_label``; see MMPreTrain's ``CustomDataset``.
        with_label (bool): Whether folders (or the list) give labels.
        extensions (str | Sequence[str]): See :class:`ImageSet`.
        **kwargs: Further arguments of ``CustomDataset``: ``pipeline``,
            ``test_mode``, ``indices``, ``lazy_init``, ...

    Raises:
        FileNotFoundError: At build time, if the folder does not exist or
            contains no file with one of the extensions.
        OSError: See :class:`ImageSet`.
        ValueError: At build time, if a line of the list has no label, or names
            an image outside the folder ``data_root/data_prefix``. See also
            :class:`ImageSet`.
    """

    def find_images(self) -> Iterator[dict]:
        """Yield the images of the folder, or of the list."""
        if not (self.ann_file or os.path.isdir(self.img_prefix)):
            inside = '<class>/<image>' if self.with_label else '<image>'
            raise FileNotFoundError(
                f'there is no folder {printable(self.img_prefix)}: create '
                f'it, with {inside} in it, or name another folder'
            )
        if self.ann_file:
            yield from self._read_list()
        elif not self.with_label:
            for path in self._files(self.img_prefix):
                yield dict(img_path=path)
        else:
            for label, name in enumerate(self._classes()):
                for path in self._files(os.path.join(self.img_prefix, name)):
                    yield dict(img_path=path, gt_label=label)

    def _read_list(self) -> Iterator[dict]:
        """Yield the images of ``ann_file``."""
        for line in read_lines(self.ann_file):
            name, image = line, {}
            if not name.strip():
                continue
            if self.with_label:
                name, _, label = name.strip().rpartition(' ')
                if not label.isdecimal() or len(label) > 9:
                    raise ValueError(
                        f'{self.ann_file!r} has the line {line!r}: write '
                        '"<path> <class number>", or set with_label=False'
                    )
                image = dict(gt_label=int(label))
            path = os.path.join(self.img_prefix, name)
            if outside(self.img_prefix, [path]):
                raise ValueError(
                    f'{printable(self.ann_file)} lists images outside '
                    f'{printable(self.img_prefix)} ({printable(path)}): set '
                    'data_root to a folder that contains all of them, or to '
                    "'/' for absolute paths"
                )
            yield dict(img_path=path, **image)

    def _classes(self) -> list[str]:
        """Return the names of the class folders, in order."""
        names = visible_folders(self.img_prefix, self.left_out)
        found = os.scandir(self.img_prefix)
        beside = [entry.name for entry in found if os.path.isfile(entry)]
        for _ in with_extension(beside, self.extensions, Counter()):
            self.left_out['beside the class folders'] += 1
        self.name_classes(names)
        return names

    def _files(self, folder: str) -> list[str]:
        """Return the paths of the images at any depth of a folder, sorted."""
        files = visible_files(folder, self.left_out)
        return sorted(with_extension(files, self.extensions, self.left_out))


def visible_folders(
    root: str, left_out: Counter[str] | None = None
) -> list[str]:
    """Return the sorted names of the visible folders in a folder.

    Args:
        root (str): The folder.
        left_out (Counter[str], optional): Counts the files in folders that a
            system or a run made. Such folders are left out.
    """
    return sorted(
        entry.name
        for entry in os.scandir(root)
        if os.path.isdir(entry)
        and not entry.name.startswith('.')
        and not _made_by_machine(entry.path, left_out)
    )


def _made_by_machine(folder: str, left_out: Counter[str] | None) -> bool:
    """Return whether a system or run made a folder; if so, count its files."""
    kind = os.path.basename(folder)
    if kind not in _OF_MACHINES:
        left = 'last_checkpoint', 'vis_data'
        if not any(os.path.exists(os.path.join(folder, n)) for n in left):
            return False
        kind += ', which a run has made'
    if left_out is not None:
        number = sum(len(files) for *_, files in os.walk(folder))
        left_out[f'in {kind}'] += number
    return True


def visible_files(
    root: str, left_out: Counter[str] | None = None
) -> Iterator[str]:
    """Find the files below a folder, at any depth.

    Hidden files are left out, and so are all files in a hidden folder, in a
    folder that a system makes (``@eaDir``, ``__MACOSX``), or in the folder of
    a run. Links are followed, but no folder is visited twice, and a folder
    that contains the root is never visited. A link whose target is missing, or
    that leads to itself, is listed, so that reading it raises an error. Pipes,
    devices and sockets are left out, because reading them may never end.

    Args:
        root (str): The folder.
        left_out (Counter[str], optional): Counts the files left out, except
            hidden ones, see :func:`with_extension`.

    Yields:
        The paths of the files, in no particular order.

    Raises:
        OSError: If a folder cannot be read, or its path is too long for the
            system. The error names the folder.
    """
    # Real paths identify folders: not every file system has inode numbers.
    above = {os.path.realpath(root), os.path.abspath(root)}
    seen = {os.path.realpath(p) for a in above for p in Path(a).parents}
    places = [root]
    while places:
        place = places.pop()
        real = os.path.realpath(place)
        if real in seen:
            continue
        seen.add(real)
        folders = []
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith('.'):
                    continue
                # The methods of DirEntry fail for a link to itself.
                lost = entry.is_symlink() and not os.path.exists(entry)
                if lost or entry.is_file():
                    yield entry.path
                elif entry.is_dir():
                    if not _made_by_machine(entry.path, left_out):
                        folders.append(entry.path)
                elif left_out is not None:
                    left_out['that are not regular files'] += 1
        # If two links lead to one folder, the alphabetically first is used.
        places += sorted(folders, reverse=True)
