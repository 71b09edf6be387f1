# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds the configs and tools, in a checkout or an installed package."""

import difflib
import os
import re
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# Extensions of the configs that MMEngine reads.
CONFIG_EXTENSIONS = ('.py', '.yml', '.yaml', '.json')


def shipped(name: str) -> Path | None:
    """Find a file or folder that the repository has beside the package.

    Args:
        name (str): Its path in the repository, such as ``configs`` or
            ``tools/train.py``.

    Returns:
        Path | None: Its path on this machine: in the folder ``.mim`` of an
        installed package, or in the checkout. None if it is in neither.
    """
    for root in (_PACKAGE / '.mim', _PACKAGE.parent):
        if (root / name).exists():
            return root / name
    return None


def find_config(name: str | os.PathLike) -> Path:
    """Find a config file.

    Args:
        name (str | os.PathLike): Path of the file, or the name of one of
            mmmoca's configs, such as 'moca_vit-b16_200e',
            'configs/demo/knn_vit-tiny_textures.py' or
            'mmmoca::demo/knn_vit-tiny_textures.py'.

    Returns:
        Path: The file.

    Raises:
        FileNotFoundError: If there is no such config. The message gives the
            most similar names.
        ValueError: If the file's extension is not that of a config.
    """
    path = Path(name).expanduser()
    for file in (path, Path(f'{path}.py')):
        if file.is_file():
            if file.suffix not in CONFIG_EXTENSIONS:
                raise ValueError(
                    f'{name} is not a config: its extension is none of '
                    f'{", ".join(CONFIG_EXTENSIONS)}'
                )
            return file
    known = shipped_configs()
    wanted = re.sub(r'^(mmmoca::|configs/)|\.py$', '', path.as_posix())
    for key, file in known.items():
        if wanted in (key, file.stem):
            return file
    if path.is_dir() and (inner := sorted(path.glob('*.py'))):
        raise FileNotFoundError(
            f'{name} is a folder: give a config in it, such as {inner[0]}'
        )
    stem = path.stem
    like = sorted(
        known,
        key=lambda key: difflib.SequenceMatcher(
            None, stem, known[key].stem[: len(stem)]
        ).ratio(),
    )[:-4:-1]
    raise FileNotFoundError(
        f'there is no config {name}: give the path of a file, or the name of '
        f"one of mmmoca's configs, such as {', '.join(like)}"
    )


def shipped_configs() -> dict[str, Path]:
    """Return the configs of mmmoca.

    Returns:
        dict[str, Path]: The config files by their names, such as
        'moca/moca_vit-b16_200e'.
    """
    folder = shipped('configs')
    # Not rglob: the folders of an installed package may be links.
    files = *folder.glob('*.py'), *folder.glob('[!_]*/*.py')
    return {
        file.relative_to(folder).with_suffix('').as_posix(): file
        for file in sorted(files)
    }


def first_comment(file: Path) -> str:
    """Return the first sentence of the comment at the top of a config."""
    text = ''
    for line in file.read_text(encoding='utf-8').splitlines()[1:]:
        if not re.match('# [^ ]', line) or text.endswith(':'):
            break
        text += line[1:]
    return re.split(r'\.\s', f'{text} ')[0].strip(' :')
