# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Settings of a command line, read by what the config has in their place."""

import re
from typing import Any

from mmengine.config import Config, DictAction

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
        key's name is that of a path; else as MMEngine reads it.

    Raises:
        ValueError: If MMEngine cannot read it.
    """
    held = cfg
    for name in key.split('.'):
        if isinstance(held, (list, tuple)) and name.isdecimal():
            held = dict(enumerate(held)).get(int(name))
        else:
            held = held.get(name) if hasattr(held, 'get') else None
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
        return DictAction._parse_iterable(text)
    except (AssertionError, RecursionError) as error:
        raise ValueError(hint) from error
