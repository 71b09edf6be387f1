# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds the files of a config, and the keys that each of them sets.

MMEngine merges a config file into those that it inherits, and keeps only the
texts of the individual files.
"""

import ast
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from mmengine import load
from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE

from mmmoca.shipped import CONFIG_EXTENSIONS

_BASE = '_base_'


class ConfigFile(NamedTuple):
    """A file of a config.

    Attributes:
        name (str): Its path.
        bases (tuple[str, ...]): Paths of the files that it names in
            ``_base_``.
        inherited (frozenset[str]): Paths of all files that it inherits,
            directly or not, and its own path.
        variables (frozenset[str]): Names that it assigns at its top level,
            except ``_base_``.
        read (frozenset[str]): Names that its text reads, whether it or an
            inherited file defines them.
        assigned (list[tuple[str, ast.expr]]): Dotted keys that its text
            assigns, even in branches that are not taken, each with the
            assigned expression.
    """

    name: str
    bases: tuple[str, ...]
    inherited: frozenset[str]
    variables: frozenset[str]
    read: frozenset[str]
    assigned: list[tuple[str, ast.expr]]


def read_config(file: str | os.PathLike) -> Config:
    """Read a config file and the files that it inherits.

    Args:
        file (str | os.PathLike): Path of the file.

    Returns:
        Config: The config. The settings of a template are still variables in
        it: they are not yet written into other keys.

    Raises:
        FileNotFoundError: If a file does not exist, or if a package that
            ``_base_`` names contains no configs.
        SyntaxError: If a file is not valid Python.
        ValueError: If a file imports modules, as configs with ``read_base()``
            do, or registers a class.
    """
    with _explained(file):
        return Config.fromfile(file, import_custom_modules=False)


@contextmanager
def _explained(file: str | os.PathLike) -> Iterator[None]:
    """Let ``_base_`` find a fork of mmsegmentation; explain errors.

    MMEngine looks for configs by the name of a distribution. The fork's
    distribution has another name than OpenMMLab's.
    """
    name = MODULE2PACKAGE['mmseg']
    try:
        distribution(name)
    except PackageNotFoundError:
        MODULE2PACKAGE['mmseg'] = 'mmseg'
    try:
        yield
    except Exception as error:
        text = _explanation(file, error)
        if text is None:
            raise
        # A KeyError would print quotation marks around the text.
        general = isinstance(error, AttributeError | KeyError | RuntimeError)
        raise (ValueError if general else type(error))(text) from error
    finally:
        MODULE2PACKAGE['mmseg'] = name


def _explanation(file: str | os.PathLike, error: Exception) -> str | None:
    """Return an explanation of an MMEngine error, or None.

    MMEngine treats a config that imports anything but built-in modules as one
    with ``read_base()``. If a file is not valid Python, MMEngine's error does
    not name the file.
    """
    text = str(error)
    if isinstance(error, FileNotFoundError):
        index = Path(f'{error.filename}')
        if index.parts[-2:] == ('.mim', 'model-index.yml'):
            checkout = index.parents[2]
            return (
                '_base_ = "PACKAGE::..." finds only configs of installed '
                f'packages: run `pip install --no-deps -e {checkout}`, or '
                f'write a path in {checkout}/configs'
            )
    if isinstance(error, SyntaxError):
        return (
            f'{file}, or a config that it inherits from: {error.msg} in line '
            f'{error.lineno}: {(error.text or "").strip()}'
        )
    if "'ConfigDict' object has no attribute" in text:
        *_, key, _ = text.split("'")
        return (
            f'{file}, or a config that it inherits from: its bases have no '
            f'{key}: write _base_.get({key!r}, []), which is then empty'
        )
    if 'lazy_import' in text:
        return (
            f'{file}: a config with _base_ cannot import modules, or inherit '
            'a config with read_base(): write a class as a string, such as '
            "type='mmmoca.NAME', and add its module to custom_imports"
        )
    if 'already registered' in text:
        return (
            f'{file}: {error.args[0]}: put the class into a module that '
            'custom_imports names, because a config is read several times'
        )
    if 'cannot inherit from base' in text:
        key = text.partition('=')[0]
        advice = (
            f'{file}: {key} is a dict here, but not in the config that it '
            'inherits from: add _delete_=True to the dict, which then '
            'replaces the inherited value'
        )
        if "<class 'list'>" not in text:
            return advice
        return (
            f'{advice}; or take the list from _base_, change it, and assign '
            'the whole list; or change an element on the command line: '
            f'--cfg-options ...{key}.0.NAME=VALUE'
        )
    return None


def config_files(cfg: Config) -> list[ConfigFile]:
    """Return the files of a config, each after the files it inherits.

    Args:
        cfg (Config): A config as it was read from a file.

    Returns:
        list[ConfigFile]: The files; empty if the config is not from files.
    """
    found: list[ConfigFile] = []
    open_files: list[ConfigFile] = []  # not inherited by any found file
    text = cfg.text or ''
    while text:
        # MMEngine joins the texts, each below the path of its file.
        name, _, text = text.partition('\n')
        content = _content(name)
        if content is None or not text.startswith(content):
            return []
        text = text[len(content) + 1 :]
        tree = _parsed(name, content)
        # Bases come first, so the last open files are this file's bases.
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
    return text if name.endswith(CONFIG_EXTENSIONS) else None


def _parsed(name: str, content: str) -> ast.Module:
    """Parse a config file of any format into a Python syntax tree.

    In JSON and YAML, MMEngine's placeholders, {{...}}, are replaced with 0.
    """
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
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == _BASE:
            code = ast.fix_missing_locations(ast.Expression(node.value))
            value = eval(compile(code, '', 'eval'))  # as MMEngine does
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
        if isinstance(node, ast.Attribute) and dotted(node) == node.attr
    }
    assigned = [*_assignments(tree.body)]
    return ConfigFile(
        name,
        tuple(base.name for base in bases),
        frozenset({name}.union(*(base.inherited for base in bases))),
        frozenset(key for key, _ in assigned if '.' not in key) - {_BASE},
        frozenset(read),
        assigned,
    )


def _assignments(
    body: Sequence[ast.AST],
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the dotted keys that are assigned, and their expressions."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.expr):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = getattr(node, 'targets', None) or [node.target]
            for target in targets:
                several = isinstance(target, ast.Tuple)
                for part in target.elts if several else [target]:
                    if (key := dotted(part)) and node.value is not None:
                        yield key, _assigned(node, part)
        # The branches of `if`, `try` and `match`, and the bodies of loops.
        yield from _assignments([*ast.iter_child_nodes(node)])


def _assigned(node: ast.AST, target: ast.expr) -> ast.expr:
    """Return the value of a target after an assignment, as an expression."""
    if isinstance(node, ast.AugAssign):
        held = ast.parse(ast.unparse(target), mode='eval').body
        return ast.BinOp(held, node.op, node.value)
    return node.value


def dotted(node: ast.expr) -> str | None:
    """Return the dotted key of an expression, or None.

    Expressions with a key are ``a``, ``_base_.a.b`` and ``a['b']``.
    """
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
    start = dotted(node.value)
    return end if start == _BASE else start and f'{start}.{end}'
