# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Settings of a command line, read by what the config has in their place.

Shorthands are short names of settings: ``shorthands=dict(epochs=
'train_cfg.max_epochs')``. One may stand for several keys, with blanks between
them, and for what follows from it: ``count:model.num_classes`` is the number
of the classes given. :data:`FORMS` has all of these.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

from mmengine.config import Config, DictAction
from mmengine.utils import to_2tuple

from mmmoca.files import read_lines
from mmmoca.messages import listed

# Last letters of keys that hold paths, also where the config has None.
_PATH = re.compile(r'(root|dir|file|folder|from|path|prefix|checkpoint)$')
# Texts that stand for numbers.
_WORDS = 'auto', 'dynamic'


def read_option(cfg: Config, key: str, text: str) -> Any:
    """Read a setting.

    MMEngine alone would make a list of a path with a comma, a number of a
    folder named 2024, and remove blanks.

    Args:
        cfg (Config): The config that has the key, or not.
        key (str): The dotted key.
        text (str): The value, as it was written.

    Returns:
        Any: The text itself where the config has a text, or nothing and the
        key's name is that of a path; texts where it has a list of them, or
        the file that lists them; else as MMEngine reads it.

    Raises:
        ValueError: If MMEngine cannot read it.
    """
    # The first key of a shorthand.
    key = key.split()[0].rpartition(':')[2]
    held = place(cfg, key)[1]
    texts = isinstance(held, (list, tuple)) and {*map(type, held)} == {str}
    if texts and text.strip('()[]') and text != 'None':
        # A name may be a number, or have blanks; a file may have all names.
        inner = re.sub(r'^\s*[(\[](.*)[)\]]\s*$', r'\1', text).rstrip(', ')
        parts = [part.strip('\'" ') for part in inner.split(',')]
        return text if os.path.isfile(text) else parts
    is_path = _PATH.search(key)
    is_text = isinstance(held, str) and held not in _WORDS
    is_text |= held is None and is_path is not None
    # None takes a setting away, unless that is the name of a folder.
    if is_text and (text != 'None' or (is_path and held is not None)):
        return text
    bare = text.strip('\'" ')
    # MMEngine removes the blanks from every value.
    if ' ' in bare and ',' not in bare and bare[0] not in '([':
        return bare
    hint = (
        f'--cfg-options {key}={text} cannot be read: write KEY.NAME=VALUE for '
        'each part of a dict, and key="[a,b]" for a list'
    )
    if re.match(r'dict\(|\{', bare):
        raise ValueError(hint)
    try:
        value = DictAction._parse_iterable(text)
    except (AssertionError, RecursionError) as error:
        raise ValueError(hint) from error
    # MMCV's transforms take no list in the place of a tuple.
    changed = {type(held), type(value)} == {list, tuple}
    return type(held)(value) if changed else value


def apply_settings(cfg: Config, settings: Mapping[str, Any]) -> None:
    """Write settings, and what follows from shorthands, into a config.

    Whole keys go before shorthands. A key may have the type of a part in the
    place of its number: ``pipeline.RandomCrop.crop_size``.

    Args:
        cfg (Config): The config with its ``shorthands``, changed in place.
        settings (Mapping[str, Any]): Values by shorthand or dotted key.

    Raises:
        ValueError: If a key is one of a part that is None, a list has no part
            of a type, or several, or nothing follows from the value of a
            shorthand.
    """
    shorthands, plain, derived = cfg.get('shorthands') or {}, {}, {}
    # In the order of the config, then whole keys.
    for key in sorted(settings, key=[*shorthands, *settings].index):
        names, value = shorthands.get(key, key).split(), settings[key]
        if 'count:' in shorthands.get(key, '') and os.path.isfile(str(value)):
            value = [*read_lines(value)]
        for name in names:
            form, _, name = name.rpartition(':')
            section, dot, _ = name.partition('.')
            if not dot or cfg.get(section, {}) is not None:
                found = derived if form else plain
                found[place(cfg, name)[0]] = form, key, value
            elif name == names[0]:  # others need not be there
                raise ValueError(
                    f'{name}: {section} is None in {cfg.filename}: write all '
                    'of it, or take the config that this one was made from'
                )
    cfg.merge_from_dict({name: found[2] for name, found in plain.items()})
    for name, (form, key, value) in derived.items():
        try:
            made = FORMS[form](value, cfg, name)
        except (LookupError, OSError, TypeError) as error:
            raise ValueError(f'{key} cannot be {value!r}: {error}') from error
        if name not in plain:
            cfg.merge_from_dict({name: made})


def place(cfg: Config, key: str) -> tuple[str, Any]:
    """A key with numbers for the types of parts, and what is held there.

    Args:
        cfg (Config): The config that has the key, or not.
        key (str): The dotted key.

    Returns:
        tuple[str, Any]: Both; None is held where there is no such key.

    Raises:
        ValueError: If a list has no part of a type, or several.
    """
    held, names = cfg, []
    for name in key.split('.'):
        if isinstance(held, (list, tuple)):
            held = {str(number): part for number, part in enumerate(held)}
            if not name.isdecimal():
                types = {
                    number: str(part.get('type')).split('.')[-1]
                    for number, part in held.items()
                    if isinstance(part, dict)
                }
                found = [
                    number for number, kind in types.items() if kind == name
                ]
                if not found:
                    raise ValueError(
                        f'{key}: {name} is not in {[*types.values()]}'
                    )
                if len(found) > 1:
                    raise ValueError(
                        f'{key}: there are {len(found)} of {name}: write its '
                        f'number in the place of its name, {listed(found)}'
                    )
                (name,) = found
        names.append(name)
        held = held.get(name) if hasattr(held, 'get') else None
    return '.'.join(names), held


def _file(root: str, cfg: Config, name: str) -> str:
    loader = name.replace('_evaluator.ann_file', '_dataloader')
    return os.path.join(root, cfg[loader].dataset.ann_file)


def _folders(root: str, cfg: Config, name: str) -> int:
    root, held = os.path.expanduser(root), place(cfg, name)[1]
    dataset = cfg.train_dataloader.dataset
    while 'dataset' in dataset:
        dataset = dataset.dataset
    folder = os.path.join(root, dataset.data_prefix)
    # PyTorch is loaded only where it is needed.
    from mmmoca.datasets.image_folder import visible_folders

    return len(visible_folders(folder)) if os.path.isdir(folder) else held


def _arch(arch: str | dict, cfg: Config, name: str) -> int | list | None:
    import mmmoca.quietly  # noqa: F401  # isort: skip
    from mmpretrain.models.backbones import VisionTransformer

    held = place(cfg, name)[1]
    arch = VisionTransformer.arch_zoo[arch] if type(arch) is str else arch
    width, depth = arch['embed_dims'], arch['num_layers']
    if name == 'activation_checkpointing':
        return held and [f'backbone.layers.{i}' for i in range(depth)]
    if name.endswith('out_indices'):
        return [(i + 1) * depth // (held[-1] + 1) - 1 for i in held]
    return [width] * len(held) if isinstance(held, list) else width


# What may follow from a shorthand: (its value, config, key) -> value.
FORMS: dict[str, Callable] = dict(
    # Of names, or of the lines of a file.
    count=lambda x, *_: len([*read_lines(x)] if type(x) is str else x),
    pair=lambda size, *_: tuple(map(index, to_2tuple(size))),
    stride=lambda size, *_: tuple(2 * side // 3 for side in to_2tuple(size)),
    edge=lambda size, *_: size * 8 // 7,  # ImageNet's 256 for 224
    # No crop of 0.15 of an image, a fifth at 3 : 4, gets smaller than a view.
    decode=lambda size, *_: math.ceil(size / 0.15**0.5),
    # A seventh of the patches, as the paper's 2 of 14.
    border=lambda size, cfg, _: round(
        min(to_2tuple(size))
        / max(to_2tuple(cfg.model.backbone.patch_size))
        / 7
    ),
    share=lambda value, *_: 1.0 * value,  # some take no integer
    file=_file,  # the annotations of the evaluator's own data set
    folders=_folders,  # classes, where they are on this machine
    arch=_arch,  # channels of what reads a ViT, and the layers that it reads
)
