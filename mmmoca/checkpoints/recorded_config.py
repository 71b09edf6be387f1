# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What runs and tools save of themselves in a checkpoint, as data."""

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

__all__ = ['parts_of', 'record_of', 'recorded_backbone', 'recorded_config']

_UNKNOWN = object()


def record_of(meta: Mapping) -> dict:
    """What a tool of this package wrote about a file.

    Args:
        meta (Mapping): ``meta`` of the checkpoint.

    Returns:
        dict: Empty where there is none.
    """
    record = meta.get('mmmoca')
    return record if isinstance(record, dict) else {}


def recorded_config(meta: object) -> dict:
    """Read the config in a checkpoint without running it.

    Args:
        meta (object): ``meta`` of the checkpoint, whatever it holds.

    Returns:
        dict: Its settings, without those that are no literals. Empty where
        there is no config.
    """
    text = meta.get('cfg') if isinstance(meta, dict) else None
    if not isinstance(text, str):
        return {}
    try:
        return {
            node.targets[0].id: value
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and (value := _value_of(node.value)) is not _UNKNOWN
        }
    # Not a config of literals, or nested too deep for one.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def recorded_backbone(meta: object) -> dict:
    """The settings of the backbone in that config, the outermost one.

    Args:
        meta (object): ``meta`` of the checkpoint, whatever it holds.

    Returns:
        dict: Empty where there is no config, or no backbone in it.
    """
    config = recorded_config(meta)
    # A variable that the file inherits may have the same name.
    model = config.get('model')
    within = parts_of(model) if isinstance(model, dict) else ()
    for part in chain(within, parts_of(config)):
        backbone = part.get('backbone') if isinstance(part, dict) else None
        if isinstance(backbone, dict):
            return backbone
    return {}


def parts_of(config: dict) -> Iterator[dict | list]:
    """The dicts and lists of a config at any depth, the outermost first.

    Args:
        config (dict): What :func:`recorded_config` returned.

    Yields:
        dict | list: Each of them, the config itself too.
    """
    parts = deque([config])
    while parts:
        part = parts.popleft()
        yield part
        inner = part.values() if isinstance(part, dict) else part
        parts.extend(p for p in inner if isinstance(p, (dict, list)))


def _value_of(node: ast.expr) -> Any:
    """A literal, where ``dict(a=1)`` counts as one."""
    if isinstance(node, ast.Dict):
        pairs = [
            (_value_of(k) if k else _UNKNOWN, _value_of(v))
            for k, v in zip(node.keys, node.values)
        ]
        return {
            key: value
            for key, value in pairs
            if isinstance(key, (str, int)) and value is not _UNKNOWN
        }
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_value_of(element) for element in node.elts]
        if any(value is _UNKNOWN for value in values):
            return _UNKNOWN
        return values if isinstance(node, ast.List) else tuple(values)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == 'dict'
    ):
        settings = {}
        for argument in node.args:
            value = _value_of(argument)
            settings |= value if isinstance(value, dict) else {}
        for keyword in node.keywords:
            value = _value_of(keyword.value)
            if value is not _UNKNOWN:
                settings[keyword.arg] = value
        return settings
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _UNKNOWN
