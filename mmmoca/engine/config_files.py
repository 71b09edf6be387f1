# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which file of a config has written what.

MMEngine merges a config file into those that it inherits and keeps their
texts alone.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mmengine import load
from mmengine.config import Config

_BASE = '_base_'


class ConfigFile(NamedTuple):
    """A file of a config.

    Attributes:
        name (str): Its path.
        inherits (bool): Whether it has ``_base_``.
        keys (frozenset[str]): Dotted keys of the values that it writes. A
            dict that it takes from elsewhere is none of them.
        variables (frozenset[str]): Names at its top level, without
            ``_base_``.
        read (frozenset[str]): Those that it reads, of its own and of files
            that it inherits.
    """

    name: str
    inherits: bool
    keys: frozenset[str]
    variables: frozenset[str]
    read: frozenset[str]


def config_files(cfg: Config) -> list[ConfigFile]:
    """Return the files of a config, each after those that it inherits.

    Args:
        cfg (Config): As it was read from a file.

    Returns:
        list[ConfigFile]: Empty for a config of another origin.
    """
    found, text = [], cfg.text or ''
    while text:
        # MMEngine joins the texts, each below the path of its file.
        name, _, text = text.partition('\n')
        if Path(name).suffix not in ('.py', '.json', '.yaml', '.yml'):
            return []
        try:
            content = Path(name).read_text(encoding='utf-8')
        except OSError:
            return []
        if not text.startswith(content):
            return []
        text = text[len(content) + 1 :]
        found.append(_parsed(name, content))
    return found


def _parsed(name: str, content: str) -> ConfigFile:
    if not name.endswith('.py'):
        parts = load(name)
        tree = ast.parse(repr(parts), mode='eval')
        keys = frozenset(_keys_of('', tree.body, {}))
        names = frozenset(parts) - {_BASE}
        return ConfigFile(name, _BASE in parts, keys, names, frozenset())
    tree = ast.parse(content)
    written = [*_assignments(tree)]
    values = dict(written)
    nodes = [*ast.walk(tree)]
    read = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    read |= {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and _dotted(node) == node.attr
    }
    return ConfigFile(
        name,
        any(isinstance(node, ast.Name) and node.id == _BASE for node in nodes),
        frozenset(
            key
            for name, value in written
            for key in _keys_of(name, value, values)
        ),
        frozenset(name for name, _ in written if '.' not in name),
        frozenset(read),
    )


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the dotted keys that are assigned, and what is assigned."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        else:
            continue
        for target in targets:
            parts = [(target, value)]
            if isinstance(target, ast.Tuple):
                values = getattr(value, 'elts', [value] * len(target.elts))
                parts = [*zip(target.elts, values)]
            for part, one in parts:
                if (key := _dotted(part)) and one is not None:
                    yield key, one


def _dotted(node: ast.expr) -> str | None:
    """Return the key that a = b, _base_.a.b or a['b'] writes or reads."""
    if isinstance(node, ast.Name):
        return '' if node.id == _BASE else node.id
    if isinstance(node, ast.Attribute):
        end = node.attr
    elif isinstance(node, ast.Subscript) and isinstance(
        node.slice, ast.Constant
    ):
        end = f'{node.slice.value}'
    else:
        return None
    start = _dotted(node.value)
    return start and f'{start}.{end}' if start != '' else end


def _keys_of(
    key: str, value: ast.expr, names: dict[str, ast.expr]
) -> Iterator[str]:
    """Yield the keys of the values that an expression writes at a key."""
    if isinstance(value, ast.Name) and value.id in names:
        others = {k: v for k, v in names.items() if k != value.id}
        yield from _keys_of(key, names[value.id], others)
    elif isinstance(value, ast.Dict):
        for name, part in zip(value.keys, value.values):
            if isinstance(name, ast.Constant):
                yield from _keys_of(_joined(key, name.value), part, names)
            elif name is None:  # {**part}
                yield from _keys_of(key, part, names)
    elif isinstance(value, ast.Call) and _dotted(value.func) == 'dict':
        for part in value.args:
            yield from _keys_of(key, part, names)
        for keyword in value.keywords:
            inner = key if keyword.arg is None else _joined(key, keyword.arg)
            yield from _keys_of(inner, keyword.value, names)
    elif isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Name):
        yield key
    else:
        yield key


def _joined(key: str, name: object) -> str:
    return f'{key}.{name}' if key else f'{name}'
