# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which file of a config set which key.

MMEngine merges a config file into those that it inherits and keeps only their
texts.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from mmengine import load
from mmengine.config import Config

_BASE = '_base_'
_ENDINGS = '.py', '.json', '.yaml', '.yml'


class ConfigFile(NamedTuple):
    """A file of a config.

    Attributes:
        name (str): Its path.
        inherited (frozenset[str]): Paths of all files that it inherits, and
            its own.
        keys (frozenset[str]): Dotted keys of the values that it writes,
            without those that it takes from ``_base_``.
        variables (frozenset[str]): Names at its top level, without
            ``_base_``.
        read (frozenset[str]): Those that it reads, of its own and of files
            that it inherits.
    """

    name: str
    inherited: frozenset[str]
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
    found, whole, text = [], [], cfg.text or ''
    while text:
        # MMEngine joins the texts, each below the path of its file.
        name, _, text = text.partition('\n')
        content = _content(name)
        if content is None or not text.startswith(content):
            return []
        text = text[len(content) + 1 :]
        tree, bases = _parsed(name, content)
        # Bases come first, so that the last ones are those of this file.
        first = len(whole) - bases
        inherited = frozenset({name}.union(*whole[first:]))
        whole[first:] = [inherited]
        found.append(_config_file(name, inherited, tree))
    return found


def _content(name: str) -> str | None:
    try:
        text = Path(name).read_text(encoding='utf-8')
    except (OSError, ValueError):
        return None
    return text if name.endswith(_ENDINGS) else None


def _parsed(name: str, content: str) -> tuple[ast.Module, int]:
    """Return the code of a file, and the number of its bases."""
    # MMEngine's placeholders are not valid Python, JSON or YAML.
    if name.endswith('.py'):
        tree = ast.parse(re.sub(r'\{\{\s*\$.*?\}\}', '0', content))
    else:
        plain = StringIO(re.sub(r'\{\{.*?\}\}', '0', content))
        parts = load(plain, file_format=Path(name).suffix[1:]) or {}
        tree = ast.parse('')
        for key, value in parts.items():
            node = ast.parse(repr(value), mode='eval').body
            tree.body.append(ast.Assign([ast.Name(key, ast.Store())], node))
    bases = dict(_assignments(tree.body)).get(_BASE)
    if bases is None:
        return tree, 0
    code = ast.fix_missing_locations(ast.Expression(bases))
    value = eval(compile(code, name, 'eval'))  # as MMEngine reads it
    return tree, 1 if isinstance(value, str) else len(value)


def _config_file(
    name: str, inherited: frozenset[str], tree: ast.Module
) -> ConfigFile:
    written = [(k, v) for k, v in _assignments(tree.body) if k != _BASE]
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
    keys = {key for k, v in written for key in _keys_of(k, v, values)}
    names = {key for key in values if '.' not in key}
    return ConfigFile(name, inherited, *map(frozenset, (keys, names, read)))


def _assignments(
    body: Sequence[ast.stmt],
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the dotted keys that are assigned, and what is assigned."""
    for node in body:
        if isinstance(node, ast.If | ast.For | ast.With):
            yield from _assignments(node.body)
            yield from _assignments(getattr(node, 'orelse', []))
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            yield from _pairs(node.target, node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call, method = node.value, node.value.func
            if isinstance(method, ast.Attribute) and method.attr == 'update':
                name = ast.Name('dict', ast.Load())
                written = ast.Call(name, call.args, call.keywords)
                yield from _pairs(method.value, written)


def _pairs(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[str, ast.expr]]:
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
        return node.id
    if isinstance(node, ast.Attribute):
        end = node.attr
    elif isinstance(node, ast.Subscript) and isinstance(
        node.slice, ast.Constant
    ):
        end = f'{node.slice.value}'
    else:
        return None
    start = _dotted(node.value)
    return end if start == _BASE else start and f'{start}.{end}'


def _keys_of(
    key: str, value: ast.expr, names: dict[str, ast.expr]
) -> Iterator[str]:
    """Yield the keys of the values that an expression writes at a key."""
    if isinstance(value, ast.Name) and value.id in names:
        others = {k: v for k, v in names.items() if k != value.id}
        yield from _keys_of(key, names[value.id], others)
    elif (parts := _parts(key, value)) is None:
        yield key
    else:
        for name, part in parts:
            inner = key if name is None else _joined(key, name)
            yield from _keys_of(inner, part, names)


def _parts(key: str, value: ast.expr) -> list[tuple[object, ast.expr]] | None:
    """Return the parts of a dict by name, or of a list of data sets.

    What ``**`` or a positional argument adds has the name None. Other values
    have no parts.
    """
    if isinstance(value, ast.Dict):
        return [
            (name and name.value, part)
            for name, part in zip(value.keys, value.values)
            if isinstance(name, ast.Constant | None)
        ]
    if isinstance(value, ast.Call) and _dotted(value.func) == 'dict':
        named = [(keyword.arg, keyword.value) for keyword in value.keywords]
        return [(None, part) for part in value.args] + named
    if isinstance(value, ast.List) and key.endswith('.datasets'):
        return [*enumerate(value.elts)]
    return None


def _joined(key: str, name: object) -> str:
    return f'{key}.{name}' if key else f'{name}'
