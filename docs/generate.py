# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pages of the site that follow from the code: a Sphinx extension.

Model zoo from the metafiles of ``configs/``, registered classes from the
registries, commands from their own ``--help``. They are written to
``docs/_generated``, which pages of the site include.
"""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = HERE / '_generated'


def model_zoo() -> Iterator[str]:
    """A table for each collection, a row for each config."""
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    for name in index['Import']:
        metafile = yaml.safe_load((ROOT / name).read_text())
        yield f'\n## {_title(metafile)}\n'
        yield '| config | published results | weights |\n|---|---|---|'
        for model in metafile['Models']:
            results = '; '.join(
                f'{metric} {value}'
                for result in model.get('Results') or ()
                for metric, value in result['Metrics'].items()
            )
            weights = model.get('Weights')
            link = f'[download]({weights})' if weights else ''
            config = f'[{model["Name"]}](../{model["Config"]})'
            yield f'| {config} | {results or "-"} | {link} |'


def _title(metafile: dict) -> str:
    """First heading of the README beside a metafile."""
    (collection, *_) = metafile['Collections']
    readme = (ROOT / collection['README']).read_text()
    return readme.removeprefix('# ').splitlines()[0]


def classes() -> Iterator[str]:
    """Every class that a config can name, by the registry that has it."""
    import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip
    from mmmoca import registry

    for room in vars(registry).values():
        if not isinstance(room, registry.Registry):
            continue
        room.import_from_location()
        own = {
            found: name  # an object once, by the last of its names
            for name, found in sorted(room.module_dict.items())
            if found.__module__.startswith('mmmoca.')
        }
        if own:
            yield f'\n## {room.name.capitalize()}s\n'
        for found, name in own.items():
            kind = 'class' if inspect.isclass(found) else 'function'
            path = f'{found.__module__}.{found.__name__}'
            yield f'### {name}\n\n```{{eval-rst}}'
            yield f'.. auto{kind}:: {path}\n```\n'


def commands() -> Iterator[str]:
    """Yield what each program's --help prints."""
    programs = (ROOT / 'tools').rglob('[!_]*.py')
    # Those directly in the folder come first.
    for program in sorted(programs, key=lambda p: (len(p.parts), p)):
        shown = subprocess.run(
            [sys.executable, program, '--help'],
            check=True,
            capture_output=True,
            text=True,
            env={'COLUMNS': '80', 'PYTHONPATH': str(ROOT)},
        )
        name = program.relative_to(ROOT)
        yield f'\n## {name}\n\n```text\n{shown.stdout.strip()}\n```'


def write_pages(app: Sphinx) -> None:
    """Write what the pages include."""
    OUT.mkdir(exist_ok=True)
    for make in (model_zoo, classes, commands):
        text = '\n'.join(make()) + '\n'
        (OUT / f'{make.__name__}.md').write_text(text)


def setup(app: Sphinx) -> dict:
    """Called by Sphinx."""
    app.connect('builder-inited', write_pages)
    return {'parallel_read_safe': True}
