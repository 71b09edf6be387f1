# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Shows the progress of a long task, as a bar or as lines of text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return Console().is_jupyter


@contextmanager
def progress_bar(
    unit: str, total: int, show: bool = True, seconds: float = 30
) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal or in a notebook, and print lines elsewhere.

    Args:
        unit (str): Name of the units, such as 'images'.
        total (int): Number of units.
        show (bool): Whether to show anything. Defaults to True.
        seconds (float): Shortest time between two lines. Defaults to 30.

    Yields:
        Callable: ``update(done, note='')`` sets the number of units done so
        far, and a note that is shown after it.
    """
    # Notebooks can show the bar of a terminal. Rich's own bar for notebooks
    # needs ipywidgets.
    console = Console(
        force_jupyter=False, force_terminal=True if in_notebook() else None
    )
    lines = show and not console.is_terminal
    bar = Progress(
        *Progress.get_default_columns(),
        MofNCompleteColumn(),
        TextColumn('{task.fields[note]}'),
        console=console,
        speed_estimate_period=600,
        disable=lines or not show,
    )
    bar.add_task(f'  {unit}', total=total, note='')
    (task,) = bar.tasks
    last = bar.get_time()

    def update(done: int, note: str = '') -> None:
        nonlocal last
        bar.update(task.id, completed=done, note=note)
        now = bar.get_time()
        if lines and (done == total or now - last >= seconds):
            last = now
            eta = TimeRemainingColumn().render(task)
            line = f'  {unit} {done:{len(str(total))}d}/{total}  {note}'
            print(f'{line.rstrip()}  eta {eta}', flush=True)

    with bar:
        yield update
