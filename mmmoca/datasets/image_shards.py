# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images in tar files: the data set class, and the reader."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from glob import escape, glob
from pathlib import Path

from mmengine.fileio import BaseStorageBackend, register_backend

from mmmoca.files import read_lines
from mmmoca.messages import listed, printable, warn
from mmmoca.registry import DATASETS
from mmmoca.requirements import import_extra

from .image_set import ImageSet
from .shard_index import key_of, read_index

# Address of an image: the shard, and the offset and number of the image's
# bytes.
TAR_ADDRESS = re.compile(r'tar://(.+?)#(\d+)\+(\d+)/.*', re.DOTALL)


@DATASETS.register_module()
class ImageShards(ImageSet):
    """Images in tar files, in the layout of WebDataset.

    In a shard, every visible file or link with the extension of an image
    counts as an image. A link stands for the file that it points to, in the
    same shard. The label of an image is the whole number in ``KEY.cls``, or
    ``label`` in ``KEY.json``, where KEY is the name of the image up to the
    first dot. A file ``classes.txt`` in the folder of the shards may name the
    classes, one per line.

    Images are read one by one, in any order. So a run samples images and
    resumes in the same way as with a folder of the same images in the same
    order. Shards must be uncompressed files on a local or network disk.

    Args:
        data_root (str): The shards: a folder of ``*.tar``, read in
            alphabetical order; one such file; or a brace pattern such as
            ``/data/train-{000000..000146}.tar``.
        data_prefix (str): Sub-folder, file or brace pattern inside
            ``data_root``, if any.
        with_label (bool): Whether to look for labels.
        extensions (str | Sequence[str]): See :class:`ImageSet`.
        image_suffix (str, optional): Use only the images with this suffix,
            the part of the file name after KEY and the dot, such as
            'input.png'. Defaults to None, which uses all images, and warns if
            a sample has several.
        **kwargs: Further arguments of :class:`ImageSet`.

    Raises:
        FileNotFoundError: At build time, if a shard does not exist, or the
            shards contain no image.
        ImportError: For a brace pattern, if ``braceexpand`` is not installed.
        OSError: At build time, if a shard is damaged, compressed or cut off.
            See also :class:`ImageSet`.
        ValueError: At build time, if ``with_label`` is True and labels are
            missing, or if an ``ann_file`` is given.
    """

    def __init__(
        self, *args, image_suffix: str | None = None, **kwargs
    ) -> None:
        self.image_suffix = image_suffix and image_suffix.lower().lstrip('.')
        super().__init__(*args, **kwargs)

    def find_images(self) -> Iterator[dict]:
        """Yield the images in the shards."""
        self.refuse_list()
        shards = self._shards()
        names = Path(shards[0]).with_name('classes.txt')
        if self.with_label and names.is_file():
            self.name_classes([*read_lines(names)])
        samples, suffixes = 0, set()
        for shard in shards:
            members = [*read_index(shard, self.extensions, self.left_out)]
            kinds = defaultdict(list)
            for name, *_ in members:
                key, suffix = key_of(name)
                kinds[key].append(suffix)
            several = [kind for kind in kinds.values() if len(kind) > 1]
            samples += len(several)
            suffixes |= {suffix for kind in several for suffix in kind}
            for name, offset, size, label in members:
                suffix = key_of(name)[1]
                if self.image_suffix not in (None, suffix):
                    self.left_out[f'with the suffix .{suffix}'] += 1
                    continue
                # MMEngine splits a URL at each ://. Offset and size are
                # formatted as numbers, so no index file can inject another
                # path.
                name = re.sub('://+', ':/', name)
                url = f'tar://{shard}#{offset:d}+{size:d}/{name}'
                yield dict(img_path=url, gt_label=label)
        if samples and self.image_suffix is None:
            warn(
                f'{samples} samples have several images, all of which are '
                'used. To use one image per sample, set image_suffix of '
                f'ImageShards to one of: {listed(sorted(suffixes))}',
                UserWarning,
            )

    def _shards(self) -> list[str]:
        place = self.img_prefix.rstrip('/')
        if os.path.isdir(place):
            # '*' leaves out hidden files. macOS adds one beside each tar file.
            tars = f'{place}/*.tar'
            shards = sorted(glob(f'{escape(place)}/*.tar')) or [tars]
        elif '{' in place and not os.path.exists(place):
            braces = import_extra('braceexpand', 'a pattern of shards')
            shards = list(braces.braceexpand(place))
        else:
            shards = [place]
        if missing := [s for s in shards if not os.path.isfile(s)]:
            raise FileNotFoundError(
                f'there is no local file {printable(missing[0])}: set '
                'data_root (and data_prefix) to a folder of .tar files '
                '(tools/dataset_converters/make_shards.py writes them), to '
                'one .tar file, or to a pattern such as train-{000..009}.tar'
            )
        return shards


class TarBackend(BaseStorageBackend):
    """Reads an image ``tar://SHARD#OFFSET+SIZE/NAME`` from a file on a disk.

    Each process keeps the most recently used tar files open. Threads and
    forked processes can share a file, because reads do not share a file
    position.
    """

    def get(self, filepath: str) -> bytes:
        """Return the bytes of one member.

        Args:
            filepath (str): The URL that :class:`ImageShards` gives. NAME
                is used only in messages.

        Returns:
            The content of the member.

        Raises:
            OSError: If the file cannot be read, or ends before the member
                does.
        """
        shard, *numbers = TAR_ADDRESS.fullmatch(filepath).groups()
        offset, size = map(int, numbers)
        # The variable keeps the file open even if another thread drops it from
        # the cache.
        file = _open(shard)
        there = max(0, os.fstat(file.fileno()).st_size - offset)
        if there < size:
            raise OSError(
                f'{printable(shard)} has only {there} of the {size} bytes of '
                'this image: the file was cut off or changed'
            )
        return os.pread(file.fileno(), size, offset)

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """Return the text of one member, see :meth:`get`."""
        return self.get(filepath).decode(encoding)


register_backend('tar', TarBackend, prefixes='tar')


# 256 is more shards than most sets have, and below 1024, the usual limit for
# open files. A file that leaves the cache is closed when nothing uses it.
@lru_cache(256)
def _open(shard: str):
    return open(shard, 'rb', buffering=0)
