# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The files of a config, and which of them set which key.

MMEngine merges a config file into those that it inherits and keeps only their
texts.
"""

import ast
import os
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from mmengine import load
from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE

from mmmoca.config_parts import short_name

_BASE = '_base_'
_ENDINGS = '.py', '.json', '.yaml', '.yml'


class ConfigFile(NamedTuple):
    """A file of a config.

    Attributes:
        name (str): Its path.
        bases (tuple[str, ...]): Paths of those that it names in ``_base_``.
        inherited (frozenset[str]): Paths of all files that it inherits, and
            its own.
        variables (frozenset[str]): Names at its top level, without
            ``_base_``.
        read (frozenset[str]): Those that it reads, of its own and of files
            that it inherits.
        literals (list[tuple[str, Any]]): Values that its text assigns to
            dotted keys, in branches that are not taken, too, as far as they
            follow from the text alone.
    """

    name: str
    bases: tuple[str, ...]
    inherited: frozenset[str]
    variables: frozenset[str]
    read: frozenset[str]
    literals: list[tuple[str, Any]]


# What expressions of a config file may call.
_BUILTINS = dict(dict=dict, list=list, tuple=tuple, int=int, float=float)


def read_config(file: str | os.PathLike) -> Config:
    """Read a config file and those that it inherits.

    Args:
        file (str | os.PathLike): Its path.

    Returns:
        Config: Settings are variables in it.

    Raises:
        FileNotFoundError: If there is none, or a package has no configs.
    """
    with _bases_are_found():
        return Config.fromfile(file, import_custom_modules=False)


@contextmanager
def _bases_are_found() -> Iterator[None]:
    """Let ``_base_`` find the fork of mmsegmentation, or say what is wrong.

    MMEngine looks for the distribution, and the fork's has another name.
    """
    name = MODULE2PACKAGE['mmseg']
    try:
        distribution(name)
    except PackageNotFoundError:
        MODULE2PACKAGE['mmseg'] = 'mmseg'
    try:
        yield
    except FileNotFoundError as error:
        index = Path(f'{error.filename}')
        if index.parts[-2:] != ('.mim', 'model-index.yml'):
            raise
        checkout = index.parents[2]
        raise FileNotFoundError(
            '_base_ = "PACKAGE::..." finds configs of installed packages '
            f'alone: run `pip install --no-deps -e {checkout}`, or write a '
            f'path of {checkout}/configs'
        ) from error
    finally:
        MODULE2PACKAGE['mmseg'] = name


def config_files(cfg: Config) -> list[ConfigFile]:
    """Return the files of a config, each after those that it inherits.

    Args:
        cfg (Config): As it was read from a file.

    Returns:
        list[ConfigFile]: Empty for a config of another origin.
    """
    found: list[ConfigFile] = []
    open_files: list[ConfigFile] = []  # which no later file inherits so far
    text = cfg.text or ''
    while text:
        # MMEngine joins the texts, each below the path of its file.
        name, _, text = text.partition('\n')
        content = _content(name)
        if content is None or not text.startswith(content):
            return []
        text = text[len(content) + 1 :]
        tree = _parsed(name, content)
        # Bases come first, so that the last ones are those of this file.
        first = len(open_files) - _count_bases(tree)
        file = _config_file(name, tree, open_files[first:])
        open_files[first:] = [file]
        found.append(file)
    return found


def _content(name: str) -> str | None:
    try:
        text = Path(name).read_text(encoding='utf-8')
    except (OSError, ValueError):
        return None
    return text if name.endswith(_ENDINGS) else None


def _parsed(name: str, content: str) -> ast.Module:
    """Return a file as code, without the placeholders of MMEngine."""
    if name.endswith('.py'):
        return ast.parse(content)
    plain = StringIO(re.sub(r'\{\{.*?\}\}', '0', content))
    parts = load(plain, file_format=Path(name).suffix[1:]) or {}
    tree = ast.parse('')
    for key, value in parts.items():
        node = ast.parse(repr(value), mode='eval').body
        tree.body.append(ast.Assign([ast.Name(key, ast.Store())], node))
    return tree


def _count_bases(tree: ast.Module) -> int:
    for node in tree.body:
        if isinstance(node, ast.Assign) and _dotted(node.targets[0]) == _BASE:
            code = ast.fix_missing_locations(ast.Expression(node.value))
            value = eval(compile(code, '', 'eval'))  # as MMEngine reads it
            return 1 if isinstance(value, str) else len(value)
    return 0


def _config_file(
    name: str, tree: ast.Module, bases: Sequence[ConfigFile]
) -> ConfigFile:
    nodes = [*ast.walk(tree)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    read |= {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and _dotted(node) == node.attr
    }
    written = [*_assignments(tree.body)]
    return ConfigFile(
        name,
        tuple(base.name for base in bases),
        frozenset({name}.union(*(base.inherited for base in bases))),
        frozenset(key for key, _ in written if '.' not in key) - {_BASE},
        frozenset(read),
        [*_literals(written)],
    )


def _assignments(
    body: Sequence[ast.AST],
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the dotted keys that are assigned, and what is assigned."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.expr):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = getattr(node, 'targets', None) or [node.target]
            for target in targets:
                several = isinstance(target, ast.Tuple)
                for part in target.elts if several else [target]:
                    if (key := _dotted(part)) and node.value is not None:
                        yield key, _assigned(node, part)
        # The branches of `if`, `try` and `match`, and the bodies of loops.
        yield from _assignments([*ast.iter_child_nodes(node)])


def _assigned(node: ast.AST, target: ast.expr) -> ast.expr:
    """Return the expression that a target has after an assignment."""
    if isinstance(node, ast.AugAssign):
        held = ast.parse(ast.unparse(target), mode='eval').body
        return ast.BinOp(held, node.op, node.value)
    return node.value


def _literals(
    written: Sequence[tuple[str, ast.expr]],
) -> Iterator[tuple[str, Any]]:
    """Yield the values that assignments write, without those of bases."""
    known: dict[str, Any] = {'__builtins__': _BUILTINS}
    for key, expression in written:
        before, name = known.copy(), key.partition('.')[0]
        known.pop(name, None)
        for end, part in ((key, expression), *_leaves(key, expression)):
            code = ast.fix_missing_locations(ast.Expression(part))
            # Nothing is known of functions, or of what bases hold.
            with suppress(Exception):
                value = eval(compile(code, '', 'eval'), before)
                for inner, plain, in_list in _values({end: value}):
                    if not in_list:
                        yield inner, plain
                if end == name:
                    known[name] = value


def _leaves(key: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parts of an expression that writes a dict, by their keys."""
    if isinstance(value, ast.Call) and _dotted(value.func) == 'dict':
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


def written_values(files: Sequence[ConfigFile]) -> dict[str, dict[str, Any]]:
    """Return the values that each file writes itself.

    These are values that differ from those of its bases, however its code
    computes them, and what follows from its text alone.

    Args:
        files (Sequence[ConfigFile]): All of a config.

    Returns:
        dict[str, dict[str, Any]]: By the file's name and the dotted key, see
        :func:`.options.place`. Of what a list holds, such as transforms, only
        values that differ from those of a base.
    """
    values, inner = {}, set()
    for file in files:
        found = [*_values(read_config(file.name))]
        values[file.name] = {key: value for key, value, _ in found}
        inner |= {key for key, _, in_list in found if in_list}
    written = {}
    for file in files:
        held = values[file.name]
        literals = [pair for pair in file.literals if pair[0] in held]
        keys = {key for key, value in literals if held[key] == value}
        if file.bases:
            known = ChainMap(*(values[name] for name in file.bases))
            keys |= held.keys() - known.keys() - inner
            keys |= {k for k in known.keys() & held if held[k] != known[k]}
        written[file.name] = {key: held[key] for key in keys}
    return written


def _values(
    part: Mapping, start: str = '', in_list: bool = False
) -> Iterator[tuple[str, Any, bool]]:
    """Yield the dotted keys of values, the values, and if a list has them.

    The keys of a list are the types that occur in it once, or numbers.
    """
    for name, value in part.items():
        key = f'{start}{name}'
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


def is_plain(value: Any) -> bool:
    """Tell values, and lists of them, from parts that settings go into."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return not isinstance(value, Mapping | None)


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
