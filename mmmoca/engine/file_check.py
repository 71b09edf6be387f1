# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks that the files of a config exist, before a run is built."""

import os
import re
from pathlib import Path

from mmengine.config import Config

from .settings import settings_of


def check_paths(cfg: Config, *stages: str) -> None:
    """Check that the checkpoint and the folders of a config exist.

    MMEngine would look for them only after it has initialised the process
    group and built the model. The data sets check what is in ``data_root``.

    Args:
        cfg (Config): The config.
        *stages (str): The stages to run, from 'train', 'val' and 'test'.

    Raises:
        FileNotFoundError: If the checkpoint of ``load_from`` or a folder of
            images is missing.
        ValueError: If a ``data_root`` is a list or a file, not one folder.
    """
    # Remote files, such as s3://..., are not checked: MMEngine reads them.
    start = os.fspath(cfg.get('load_from') or '')
    path = re.sub(r'^mmmoca-\w+://', '', start)
    if path and '://' not in path and not Path(path).expanduser().exists():
        raise FileNotFoundError(f'there is no checkpoint {_place(path)}')
    missing: dict[str, list[str]] = {}
    for stage in stages:
        # In a loop with a bank, data_root is the folder of all its data sets.
        key, part = f'{stage}_cfg', cfg.get(f'{stage}_cfg') or {}
        has_bank = any(name.endswith('_dataloader') for name in part)
        if not part.get('data_root'):
            part = (cfg.get(f'{stage}_dataloader') or {}).get('dataset', {})
            key = key if has_bank else f'{stage}_dataloader.dataset'
        root = part.get('data_root') or ''
        if not isinstance(root, str | os.PathLike):
            raise ValueError(f'{key}.data_root={root!r}: must be one folder')
        root = os.fspath(root)
        local = '://' not in root and not root.endswith('.tar')
        kind = str(part.get('type'))
        ours = kind.startswith('mmmoca.')
        if kind == 'mmmoca.ImageFolder' and Path(root).expanduser().is_file():
            raise ValueError(
                f'{key}.data_root={root} is a file, not a folder of images. '
                f'If it is a tar file of images, write {key}.type='
                'mmmoca.ImageShards; if it is another archive, unpack it; if '
                f'it is a list of names, pass it as {key}.ann_file'
            )
        if ours and local and not Path(root).expanduser().is_dir():
            known = settings_of(cfg)
            apart = stage != 'train' and 'knn_root' in known
            short = 'knn_root' if apart else 'data_root'
            name = short if short in known else f'{key}.data_root'
            missing.setdefault(root, []).append(name)
    several = ''
    if cfg.get('settings') == 'own_images':
        several = (
            ' (for several folders, put links to them into one folder, or use '
            'mmmoca.pretrain in Python)'
        )
    for root, names in missing.items():
        options = ' '.join(f'{name}=DIR' for name in dict.fromkeys(names))
        raise FileNotFoundError(
            f'there is no folder {_place(root)}: set it with --cfg-options '
            f'{options}{several}'
        )


def _place(path: str) -> str:
    """Return a path; if it is relative, add the folder it starts from."""
    is_whole = os.path.isabs(os.path.expanduser(path))
    return path if is_whole else f'{path} (from {os.getcwd()})'
