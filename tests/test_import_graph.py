# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""No import of the package goes up, aside or round in a circle."""

import ast
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

import mmmoca

FLOORS = (
    (*('registry', 'version', 'files', 'messages', 'progress', 'stack'),),
    ('models', 'datasets', 'evaluation', 'checkpoints'),
    ('engine', 'visualization', 'hub'),
    ('apis', '__main__'),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
BASE = ('models', 'datasets', 'checkpoints')  # what evaluation may import
ASIDE = {
    *(('evaluation', room) for room in BASE),
}


def check_imports(root):
    """Imports inside functions count, too."""
    graph = {}
    for path in root.rglob('*.py'):
        parts = path.relative_to(root.parent).with_suffix('').parts
        graph['.'.join(parts).removesuffix('.__init__')] = path
    for name, path in graph.items():
        package = name if path.stem == '__init__' else name.rpartition('.')[0]
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                source = '.' * node.level + (node.module or '')
                source = resolve_name(source, package)
                members = [f'{source}.{member}' for member in names]
                names = [m if m in graph else source for m in members]
            found.update(names)
        graph[name] = found & graph.keys()
        for other in graph[name] if name != root.name else ():
            pair = tuple(module.split('.')[1] for module in (name, other))
            down = FLOOR[pair[0]] > FLOOR[pair[1]] or pair[0] == pair[1]
            assert down or pair in ASIDE, f'{name} must not import {other}'
    TopologicalSorter(graph).prepare()  # raises CycleError, which names it


def test_imports():
    check_imports(Path(mmmoca.__file__).parent)


@pytest.mark.parametrize(
    'line, message',
    [
        ('from mmmoca.engine import a', r'models\.b must not .*engine\.a'),
        ('def f(): from . import a', r'cycle.*models\.[ab].*models\.[ab]'),
    ],
)
def test_what_is_refused(tmp_path, line, message):
    for file, text in (
        ('engine/a.py', ''),
        ('models/a.py', 'from . import b'),
        ('models/b.py', line),
    ):
        (tmp_path / 'mmmoca' / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'mmmoca' / file).write_text(text)
    with pytest.raises((AssertionError, CycleError), match=message):
        check_imports(tmp_path / 'mmmoca')
