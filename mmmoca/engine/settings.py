# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads short settings and writes what they stand for into a config."""

import copy
import inspect
import os
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, get_args, get_type_hints

from mmengine.config import Config

from mmmoca.files import read_lines

from .options import read_names
from .templates import SETTINGS, Names


def settings_of(cfg: Config) -> dict[str, Any]:
    """Return the settings that a config accepts.

    Args:
        cfg (Config): The config. Its ``settings``, if given, names a function
            of :mod:`.templates`.

    Returns:
        dict[str, Any]: The types of the settings by name.

    Raises:
        ValueError: If ``settings`` names no such function.
    """
    name = cfg.get('settings')
    if name is None:
        return {}
    if name not in SETTINGS:
        raise ValueError(f'settings={name!r}: write one of {[*SETTINGS]}')
    hints = get_type_hints(SETTINGS[name])
    names = inspect.signature(SETTINGS[name]).parameters.keys() - {'cfg'}
    return {key: hints[key] for key in hints if key in names}


def is_setting(value: Any) -> bool:
    """Return whether a value is a setting, not a part such as a transform."""
    is_part = isinstance(value, dict) and 'type' in value
    return value is not None and not is_part


def unwritten_settings(cfg: Config) -> list[str]:
    """Return the settings that have not been written into a config's keys.

    They have no effect if MMEngine alone reads the config: to MMEngine they
    are mere variables.

    Args:
        cfg (Config): The config of a run.

    Returns:
        list[str]: ``key=value`` of each setting that the run does not follow.
    """
    found = []
    for key in settings_of(cfg):
        if is_setting(value := cfg.get(key)):
            changed = copy.deepcopy(cfg)
            write_settings(changed, {key: value})
            if changed.to_dict() != cfg.to_dict():
                found.append(f'{key}={value!r}')
    return found


def read_setting(key: str, kind: Any, text: str) -> Any:
    """Convert a setting from a command line to its type.

    Args:
        key (str): Name of the setting, for the error.
        kind (Any): Type of the setting, see :func:`settings_of`.
        text (str): The value, as it was written.

    Returns:
        Any: A string if the type allows one; otherwise a bool, a number or a
        size.

    Raises:
        ValueError: If the type requires a number, and the text is not one.
    """
    kinds = {*get_args(kind)}
    if str in kinds:
        return text
    if bool in kinds:
        return dict(true=True, false=False).get(text.lower(), text)
    pair = tuple[int, int] in kinds
    number = float if float in kinds else int
    parts = text.strip('()[]\'" ').split(',') if pair else [text]
    try:
        numbers = tuple(map(number, parts))
    except ValueError as error:
        whole = ' whole' if number is int else ''
        raise ValueError(f'{key}={text} is not a{whole} number') from error
    return numbers if len(numbers) > 1 else numbers[0]


def write_settings(cfg: Config, values: Mapping[str, Any]) -> None:
    """Write settings, and what follows from them, into a config.

    Args:
        cfg (Config): A config of a template, changed in place.
        values (Mapping[str, Any]): Values by the name of the setting.

    Raises:
        ValueError: If a value makes no sense, or if the config lacks a part
            that a setting changes.
    """
    kinds = settings_of(cfg)
    try:
        values = {k: _checked(k, kinds[k], v) for k, v in values.items()}
        SETTINGS[cfg.settings](cfg, **values)
    except (AttributeError, LookupError, TypeError) as error:
        given = ', '.join(f'{k}={v!r}' for k, v in values.items())
        raise ValueError(
            f'{given} cannot be set in {cfg.filename}: {error!r}. Write full '
            'keys, such as train_cfg.max_epochs, or use the original config'
        ) from error


def _checked(key: str, kind: Any, value: Any) -> Any:
    """Check the type of a setting's value; read names from a file."""
    kinds = {*get_args(kind)}
    if isinstance(value, str) and {*get_args(Names)} <= kinds:
        is_path = ',' not in value and re.search(r'/|\.\w{3,5}$', value)
        if is_path and not os.path.isfile(value):
            raise ValueError(f'{key}: there is no file {value}')
        names = read_names(value)
        if isinstance(names, str):
            return [line for line in read_lines(names) if line.strip()]
        return names
    text = kinds <= {str, type(None)}
    if text and not isinstance(value, str | os.PathLike | None):
        raise ValueError(f'{key}={value!r} must be a single string')
    if bool in kinds and not isinstance(value, bool | None):
        raise ValueError(f'{key}={value!r} must be True or False')
    number = Real if float in kinds else Integral
    several = isinstance(value, (list, tuple))
    parts = value if several else [value]
    right = not (several and tuple[int, int] not in kinds) and all(
        isinstance(n, number) and not isinstance(n, bool) for n in parts
    )
    if value is not None and kinds & {int, float} and not right:
        whole = ' whole' if number is Integral else ''
        raise ValueError(f'{key}={value!r} must be a{whole} number')
    # Transforms refuse an integer as a probability.
    return float(value) if float in kinds and right else value
