# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The parts of gpu.py, most worth first; and the process of one.

gpu.py starts ``python gpu_parts.py NAME``, which imports what it needs while
the part before it runs, and writes the setting to it when it may begin.
"""

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from gpu_figures import Failure, Figures, Outcome
from gpu_setting import Setting


class Part(NamedTuple):
    """A part.

    Attributes:
        title (str): What it measures.
        module (str): Where its function is, which has the part's name.
        seconds (int): What it takes, a guess for one H100 until measured.
    """

    title: str
    module: str
    seconds: int

    def function(self, name: str) -> Callable[[Setting], Iterator[Outcome]]:
        """What yields its figures; PyTorch is imported for it."""
        return getattr(import_module(self.module), name)


PARTS = {
    'machine': Part('the device', 'gpu_device', 20),
    'tests': Part('tests on a GPU', 'gpu_tests', 75),
    'step': Part('steps by precision, compiled', 'gpu_steps', 120),
    'reference': Part("against the authors' step", 'gpu_steps', 60),
    'largest_batch': Part('the largest batch', 'gpu_steps', 35),
    'large': Part('the large network', 'gpu_steps', 25),
    'sections': Part('sections of a step', 'gpu_steps', 20),
    'objective': Part('objective, lean or not', 'gpu_objective', 20),
    'demo': Part("the quick start's recipe", 'gpu_runs', 60),
    'distributed': Part('NCCL, one process', 'gpu_runs', 35),
    'textures': Part('300 steps at 224 pixels', 'gpu_runs', 60),
    'runner': Part('the Runner: waits, idle time', 'gpu_loaders', 45),
    'pipeline': Part('the loader alone', 'gpu_loaders', 25),
    'compiled': Part('what else is compiled', 'gpu_steps', 240),
}


def run_part(name: str, setting: Setting, figures: Figures) -> None:
    """Add what a part finds, as it finds it; what it raises is a failure."""
    try:
        for outcome in PARTS[name].function(name)(setting):
            figures.add(name, outcome)
    except Exception as error:
        traceback.print_exc()
        first = str(error).strip().split('\n')[0]
        what = type(error).__name__
        figures.add(name, Failure(PARTS[name].title, f'{what}: {first}'))


def main() -> None:
    """Run the part that the command line names."""
    name = sys.argv[1]
    import_module(PARTS[name].module)
    options = json.loads(sys.stdin.readline())
    print(f'=== {name}', flush=True)
    out = Path(options.pop('out'))
    run_part(name, Setting(out=out, **options), Figures(out / 'figures.jsonl'))


if __name__ == '__main__':
    main()
