# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads full keys from a command line, and writes them into a config.

A full key is the path of a value, such as ``train_cfg.max_epochs``.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmengine.config import Config, DictAction

from mmmoca.config_parts import short_name
from mmmoca.messages import listed

# Endings of keys that hold paths, even if the config has None there.
_PATH = re.compile(r'(root|dir|file|folder|from|path|prefix|checkpoint)$')
# Strings that a config may have instead of a number.
_WORDS = 'auto', 'dynamic'


def read_option(cfg: Config, key: str, text: str) -> Any:
    """Convert the text of a command line to the value of a key.

    MMEngine alone would change a path with a comma into a list and a folder
    named 2024 into a number, and it would remove blanks.

    Args:
        cfg (Config): The config, which may lack the key.
        key (str): The dotted key.
        text (str): The value, as it was written.

    Returns:
        Any: The value, which depends on what the config has at the key. If the
        config has a string there, the value is the text itself. If the config
        has nothing there, but the key's name is that of a path, the value is
        also the text itself, except for True and False. If the config has a
        list of strings, the value is a list of strings, or the name of a file
        that lists them. Otherwise the value is what MMEngine reads.

    Raises:
        ValueError: If MMEngine cannot read the text.
    """
    held = place(cfg, key)[1]
    texts = isinstance(held, (list, tuple)) and {*map(type, held)} == {str}
    if texts and text.strip('()[]') and text != 'None':
        return read_names(text)
    is_path = _PATH.search(key)
    is_text = isinstance(held, str) and held not in _WORDS
    is_switch = text in ('True', 'False')
    is_text |= held is None and is_path is not None and not is_switch
    # The text None removes a value, except a path: a folder may be called
    # None.
    if is_text and (text != 'None' or (is_path and held is not None)):
        return text
    bare = text.strip('\'" ')
    # MMEngine removes the blanks from every value.
    if ' ' in bare and ',' not in bare and bare[0] not in '([':
        return bare
    hint = (
        f'--cfg-options {key}={text} cannot be read: write KEY.NAME=VALUE for '
        'each part of a dict, key="[a,b]" for a list, and put a list of dicts '
        'into a config file'
    )
    if re.search(r'(^|[\[(,])\s*(dict\(|\{)', bare):
        raise ValueError(hint)
    try:
        value = DictAction._parse_iterable(text)
    except (AssertionError, RecursionError) as error:
        raise ValueError(hint) from error
    # MMCV's transforms do not accept a list instead of a tuple.
    changed = {type(held), type(value)} == {list, tuple}
    return type(held)(value) if changed else value


def read_names(text: str) -> str | list[str]:
    """Split names at commas, unless the text is a file that lists names.

    Args:
        text (str): The path of a file; or names, which may be numbers or
            contain blanks.

    Returns:
        str | list[str]: The path, or the names.
    """
    inner = re.sub(r'^\s*[(\[](.*)[)\]]\s*$', r'\1', text).rstrip(', ')
    parts = [part.strip('\'" ') for part in inner.split(',')]
    return text if os.path.isfile(text) else parts


def write_options(cfg: Config, options: Mapping[str, Any]) -> None:
    """Write the values of full keys into a config.

    Args:
        cfg (Config): The config, changed in place.
        options (Mapping[str, Any]): Values by dotted key. In a key, an item
            of a list is named by its index, or by its ``type``.

    Raises:
        ValueError: If a key is inside a part that is None. See also
            :func:`place`.
    """
    for key in options:
        section, dot, _ = key.partition('.')
        if dot and cfg.get(section, {}) is None:
            raise ValueError(
                f'{key}: {section} is None in {cfg.filename}: write all keys '
                f'of {section}, or use a config that has them'
            )
    cfg.merge_from_dict({place(cfg, k)[0]: v for k, v in options.items()})


def entries(part: Config | Mapping | Sequence) -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of everything in a config.

    Args:
        part (Config | Mapping | Sequence): A config, or a part of it.
    """
    pairs = part.items() if hasattr(part, 'items') else enumerate(part)
    for key, value in pairs:
        yield f'{key}', value
        if isinstance(value, Mapping | list | tuple):
            yield from ((f'{key}.{end}', v) for end, v in entries(value))


def keys_named(cfg: Config | Mapping, name: str) -> list[str]:
    """Return the dotted keys of a config that end in a name."""
    return [key for key, _ in entries(cfg) if key.split('.')[-1] == name]


def place(cfg: Config, key: str) -> tuple[str, Any]:
    """Replace types in a key with numbers, and find the value at the key.

    In a key, the type of a part may stand for its number in a list.

    Args:
        cfg (Config): The config, which may lack the key.
        key (str): The dotted key.

    Returns:
        tuple[str, Any]: The key with numbers, and the value at it. The value
        is None if there is no such key.

    Raises:
        ValueError: If no part of a list has the type, or several have it; or
            if the key has a number where the config has no list.
    """
    held, names = cfg, []
    for name in key.split('.'):
        if isinstance(held, (list, tuple)):
            try:
                number = int(name) if name.isdecimal() else _number(held, name)
            except ValueError as error:
                raise ValueError(f'{key}: {error}') from error
            held = held[number] if number < len(held) else None
            names.append(str(number))
        elif name.isdecimal() and 'type' in (held or ()):
            one = '.'.join(names)
            raise ValueError(
                f'{key}: {one} is a single part, not a list: leave out {name}'
            )
        else:
            held = held.get(name) if hasattr(held, 'get') else None
            names.append(name)
    return '.'.join(names), held


def find_part(parts: Sequence[dict], name: str) -> dict:
    """Return the part of a list that has a given type.

    Args:
        parts (Sequence[dict]): Configs, such as those of transforms.
        name (str): The type, without its scope.

    Returns:
        dict: The part itself, not a copy.

    Raises:
        ValueError: If no part has the type, or several have it.
    """
    return parts[_number(parts, name)]


def _number(parts: Sequence, name: str) -> int:
    types = {
        number: short_name(part)
        for number, part in enumerate(parts)
        if isinstance(part, dict)
    }
    found = [number for number, kind in types.items() if kind == name]
    if not found:
        raise ValueError(f'{name} is not in {[*types.values()]}')
    if len(found) > 1:
        raise ValueError(
            f'there are {len(found)} of {name}: instead of its name, write '
            f'one of the numbers {listed(found)}'
        )
    return found[0]
