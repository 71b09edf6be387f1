# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds the values that each file of a config writes itself."""

import ast
import re
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mmmoca.config_parts import is_plain, short_name

from .config_files import ConfigFile, dotted, read_config

# Functions that expressions of a config file may call.
_BUILTINS = dict(dict=dict, list=list, tuple=tuple, int=int, float=float)


def written_values(files: Sequence[ConfigFile]) -> dict[str, dict[str, Any]]:
    """Return the values that each file writes itself.

    A file writes a value itself if the value differs from that in the file's
    bases, whatever code computes it. A file also writes a value itself if one
    of its assignments gives the value without reading the bases, even if a
    base has the same value.

    Args:
        files (Sequence[ConfigFile]): All files of a config, each after its
            bases.

    Returns:
        dict[str, dict[str, Any]]: The values by the file's name and the
        dotted key, see :func:`.options.place`. Values inside a list, such as
        those of transforms, count only if a base has another value there.
    """
    values, inner = {}, set()
    for file in files:
        found = [*_values(read_config(file.name))]
        values[file.name] = {key: value for key, value, _ in found}
        inner |= {key for key, _, in_list in found if in_list}
    written: dict[str, dict[str, Any]] = {}
    for file in files:
        held = values[file.name]
        keys = {
            key
            for key, value in _literals(file.assigned)
            if key in held and held[key] == value
        }
        if file.bases:
            known = ChainMap(*(values[name] for name in file.bases))
            # If a file puts a base's data set into a wrapper, the keys change,
            # but the file has not written the values.
            twins: dict[str, list[str]] = defaultdict(list)
            for key in known:
                twins[_bare(key)].append(key)
            for key in held.keys() - known.keys():
                others = twins.get(_bare(key), [])
                same = {k for k in others if known[k] == held[key]}
                for name in file.inherited - {file.name} if same else ():
                    if same & written[name].keys():
                        written[name][key] = held[key]
                if not same and (others or key not in inner):
                    keys.add(key)
            keys |= {k for k in known.keys() & held if held[k] != known[k]}
        written[file.name] = {key: held[key] for key in keys}
    return written


def _values(
    part: Mapping, start: str = '', in_list: bool = False
) -> Iterator[tuple[str, Any, bool]]:
    """Yield each value's dotted key, the value, and whether it is in a list.

    For a dict in a list, the key contains the type of the dict instead of its
    index. A dict is left out if its type occurs twice. In ``datasets``, and in
    lists with an item that is not a dict, the key contains the index.
    """
    for name, value in part.items():
        key = f'{start}{name}'
        if name == '_scope_':  # MMEngine adds it to bases from packages
            continue
        if isinstance(value, Mapping):
            yield from _values(value, f'{key}.', in_list)
        elif not isinstance(value, list | tuple) or is_plain(value):
            yield key, value, in_list
        elif name == 'datasets' or not all(
            isinstance(item, Mapping) for item in value
        ):
            parts = dict(enumerate(value))
            yield from _values(parts, f'{key}.', in_list or name != 'datasets')
        else:
            types = [*map(short_name, value)]
            once = {t: p for t, p in zip(types, value) if types.count(t) == 1}
            yield from _values(once, f'{key}.', True)


def _bare(key: str) -> str:
    """Return a key without the wrappers of its data set."""
    return re.sub(r'\.dataset(\.dataset|\.datasets\.\d+)+\b', '.dataset', key)


def _literals(
    assigned: Sequence[tuple[str, ast.expr]],
) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values that assignments alone determine."""
    known: dict[str, Any] = {'__builtins__': _BUILTINS}
    for key, expression in assigned:
        before, name = known.copy(), key.partition('.')[0]
        known.pop(name, None)
        parts = {key: expression} | dict(_leaves(key, expression))
        for end, part in parts.items():
            code = ast.fix_missing_locations(ast.Expression(part))
            # Values of bases and most functions are not known here: leave out
            # an expression that needs them.
            with suppress(Exception):
                value = eval(compile(code, '', 'eval'), before)
                for path, leaf, in_list in _values({end: value}):
                    if not in_list:
                        yield path, leaf
                if end == name:
                    known[name] = value


def _leaves(key: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the keys and expressions in an expression that makes a dict."""
    if isinstance(value, ast.Call) and dotted(value.func) == 'dict':
        for keyword in value.keywords:
            if keyword.arg is not None:
                yield from _leaves(f'{key}.{keyword.arg}', keyword.value)
    elif isinstance(value, ast.Dict):
        for name, part in zip(value.keys, value.values):
            if isinstance(name, ast.Constant):
                yield from _leaves(f'{key}.{name.value}', part)
    elif isinstance(value, ast.List) and key.endswith('.datasets'):
        for number, part in enumerate(value.elts):
            yield from _leaves(f'{key}.{number}', part)
    else:
        yield key, value
