# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Chooses the data set class that reads the images at a place."""

import os

from .file_extensions import EXTENSIONS
from .hf_images import ARROW_ADDRESS, HFImages
from .image_folder import ImageFolder
from .image_set import ImageSet
from .image_shards import TAR_ADDRESS, ImageShards


def stored_in(path: str) -> str | None:
    """Return the file that stores an image, if the image is not itself a file.

    Args:
        path (str): Path of an image, or its ``tar://`` or ``arrow://`` URL.

    Returns:
        The shard, or ``state.json`` of the Hugging Face data set (it changes
        when the images do); None if ``path`` is a file path.
    """
    if match := TAR_ADDRESS.fullmatch(path):
        return match[1]
    if match := ARROW_ADDRESS.fullmatch(path):
        return os.path.join(match[1], 'state.json')
    return None


# Endings of archives from which no loader can read single images.
_PACKED = (
    *('.zip', '.gz', '.tgz', '.bz2', '.tbz2', '.xz', '.txz'),
    *('.zst', '.lz4', '.7z', '.rar'),
)


def refuse_archive(path: str) -> None:
    """Raise if a path is an archive that must be unpacked before use.

    Raises:
        ValueError: If it is such an archive. The message says what to do.
    """
    if path.lower().endswith(_PACKED) and os.path.isfile(path):
        raise ValueError(
            f'{path} is a packed archive: unpack it into a folder, or convert '
            'it to an uncompressed .tar'
        )


def image_set_of(place: str) -> type[ImageSet]:
    """Return the data set class for a folder, shards or a Hugging Face set.

    Args:
        place (str): A folder, a tar file, or a brace pattern of tar files.

    Returns:
        The class that accepts this place as its ``data_root``.

    Raises:
        ValueError: See :func:`refuse_archive`.
    """
    place = os.path.expanduser(place)
    refuse_archive(place)
    if not os.path.isdir(place):
        pattern = '{' in place and not os.path.exists(place)
        shards = pattern or place.endswith('.tar')
        return ImageShards if shards else ImageFolder
    # `save_to_disk` of Hugging Face's data sets writes these files.
    for name in ('state.json', 'dataset_dict.json'):
        if os.path.isfile(os.path.join(place, name)):
            return HFImages
    shards = False
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith('.'):
                continue
            # The folder may hold an archive and the images unpacked from it.
            if os.path.isdir(entry) or entry.name.lower().endswith(EXTENSIONS):
                return ImageFolder
            shards |= entry.name.endswith('.tar')
    return ImageShards if shards else ImageFolder
