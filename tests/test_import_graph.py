# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""No import within the package goes up or sideways, or forms a circle."""

import ast
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import mmmoca

# The packages of each layer, from the bottom up.
FLOORS = """
registry version files messages progress requirements shipped config_parts
import_mmpretrain
models datasets evaluation checkpoints
engine hub
apis
visualization __main__
"""
FLOOR = {
    room: number
    for number, rooms in enumerate(FLOORS.splitlines())
    for room in rooms.split()
}
# `evaluation` may import these packages of its own layer.
ASIDE = {
    ('evaluation', room) for room in ('models', 'datasets', 'checkpoints')
}


def test_imports():
    """Imports inside functions count, too."""
    root = Path(mmmoca.__file__).parent
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
    # If there is a circle, this raises a CycleError that names it.
    TopologicalSorter(graph).prepare()
