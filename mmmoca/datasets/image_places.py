# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which data set reads the images at a place."""

import os

from .hf_images import HFImages
from .image_folder import ImageFolder
from .image_set import EXTENSIONS, ImageSet
from .image_shards import ImageShards

__all__ = ['image_set_of']

# What `save_to_disk` of Hugging Face's data sets writes.
_ARROW = ('state.json', 'dataset_dict.json')


def image_set_of(place: str) -> type[ImageSet]:
    """Tell folders, shards and data sets of Hugging Face apart.

    Args:
        place: A folder, a tar file, or a pattern of them.

    Returns:
        The class of data sets whose ``data_root`` it is.
    """
    place = os.path.expanduser(place)
    if not os.path.isdir(place):
        shards = place.endswith('.tar') or '{' in place
        return ImageShards if shards else ImageFolder
    if any(os.path.isfile(os.path.join(place, name)) for name in _ARROW):
        return HFImages
    shards = False
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith('.'):
                continue
            # An archive may lie beside the images that it was unpacked to.
            if entry.is_dir() or entry.name.lower().endswith(EXTENSIONS):
                return ImageFolder
            shards |= entry.name.endswith('.tar')
    return ImageShards if shards else ImageFolder
