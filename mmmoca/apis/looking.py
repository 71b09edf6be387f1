# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reports on data without a run: :func:`mmmoca.look`."""

import os
from collections.abc import Iterable, Sequence, Sized
from typing import Any

from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope
from torch.utils.data import ConcatDataset

from mmmoca.checkpoints.record import images_record, normalisation
from mmmoca.config_parts import stage_loaders
from mmmoca.datasets.file_extensions import BAND_EXTENSIONS
from mmmoca.datasets.image_places import image_set_of, refuse_archive
from mmmoca.datasets.image_set import ImageSet, judge_images
from mmmoca.datasets.look import Look, look_at
from mmmoca.datasets.look.images import PIXELS
from mmmoca.engine.config import read_run
from mmmoca.engine.console import without_idle_warnings
from mmmoca.engine.hooks import LookHook
from mmmoca.engine.segmentation_check import check_files, unread_sets
from mmmoca.evaluation.loaders import with_data_root
from mmmoca.messages import listed
from mmmoca.registry import LOOPS
from mmmoca.shipped import find_config

from .images import build_transform
from .opening import items_of


def look(
    data: str | os.PathLike | Iterable[str | os.PathLike],
    options: dict | Sequence[str] = (),
    pixels: int | None = None,
) -> Look:
    """Report on images, classes, masks and boxes, and on what stands out.

    Args:
        data (str | os.PathLike | Iterable[str | os.PathLike]): A folder of
            images at any depth, a folder of shards, or a Hugging Face data
            set; or a list of these, which is treated as one data set; or the
            path or name of a config, whose data sets, masks and boxes are
            reported.
        options (dict | Sequence[str]): Settings to change in the config, see
            :func:`read_run`.
        pixels (int, optional): Number of images to decode from each data set.
            None and 0 stand for ``look.pixels`` of the config, or else for
            200.

    Returns:
        Look: The report, which Python and notebooks show as tables. Its
        attributes ``odd`` (what stands out) and ``wrong`` (what a run cannot
        use) are lists of sentences.

    Raises:
        FileNotFoundError: If there is neither an image at this place nor a
            config of this name, or if a folder of a config is missing.
        ValueError: If a data set of a config cannot be built; if a list is
            empty or contains a file that is no shard; or if there are
            ``options`` without a config.
    """
    with without_idle_warnings():  # the report says the same
        places = [os.path.expanduser(os.fspath(p)) for p in items_of(data)]
        if len(places) == 1:
            return _look(places[0], options, pixels)
        for place in places:
            if os.path.isfile(place) and not place.endswith('.tar'):
                raise ValueError(
                    f'{place} is a file. A list may contain only folders and '
                    '.tar files; a config must be passed alone'
                )
        if not places:
            raise ValueError('the list of folders is empty')
        _refuse(options)
        # MMEngine's ConcatDataset would require equal classes.
        images: Sized = ConcatDataset([*map(_images_at, places)])
        return look_at(dict(data=images), pixels=pixels or PIXELS)


def _look(
    place: str, options: dict | Sequence[str], pixels: int | None
) -> Look:
    if os.path.isdir(place) or place.endswith('.tar') or '{' in place:
        _refuse(options)
        images = _images_at(place)
        return look_at(dict(data=images), pixels=pixels or PIXELS)
    refuse_archive(place)
    cfg = read_run(find_config(place), options)
    record = images_record(cfg.to_dict(), channels=3, img_size=(1, 1))
    head = cfg.model.get('head') or {}
    classes = head.get('num_classes')
    pixels = pixels or LookHook(**(cfg.get('look') or {})).pixels
    return look_at(_sets_of(cfg), normalisation(record), pixels, classes)


def _refuse(options: dict | Sequence[str]) -> None:
    if options:
        raise ValueError(
            f'{listed(options)}: settings need a config; pass its name'
        )


def _images_at(place: str) -> ImageSet:
    """Find the images at a place, including those that cannot be read."""
    images = image_set_of(place)(
        place, with_label=False, pipeline=[], extensions=BAND_EXTENSIONS
    )
    images.pipeline.transforms = [
        build_transform(dict(type='mmmoca.LoadImage'))
    ]
    return images


def _sets_of(cfg: Config) -> dict[str, Sized]:
    """Build the data sets of a config, with names such as 'val bank'."""
    loaders: dict[str, dict] = {}
    roles: tuple[str, ...] = ('train', 'val', 'test')
    loop = (cfg.get('val_cfg') or {}).get('type')
    loop = LOOPS.get(loop) if isinstance(loop, str) else loop
    if getattr(loop, 'of_training', False):
        roles = ('train',)  # validation uses the training images too
    for role in roles:
        root = (cfg.get(f'{role}_cfg') or {}).get('data_root')
        for name, loader in stage_loaders(cfg, role).items():
            moved: Any = with_data_root(loader, root)
            if moved['dataset'] not in loaders.values():
                loaders[name] = moved['dataset']
    sets = {}
    scope = cfg.get('default_scope', 'mmpretrain')
    with DefaultScope.overwrite_default_scope(scope):
        for role, config in loaders.items():
            for part in unread_sets(config) if scope == 'mmseg' else ():
                check_files(part)
            sets[role] = DATASETS.build(config)
            judge_images(sets[role])
    return sets
