# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How far a long task is: a bar on a terminal or in a notebook, else lines."""

import sys
import time
from datetime import timedelta

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

__all__ = ['ProgressBar', 'in_notebook', 'progress_console']


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    # IPython is there if it runs this.
    shell = sys.modules.get('IPython')
    shell = shell and shell.get_ipython()
    return type(shell).__name__ == 'ZMQInteractiveShell'


def progress_console() -> Console:
    """A console that shows bars wherever they can be seen.

    In notebooks rich needs ipywidgets for them, but a line that is written
    over again and again is understood there, too.
    """
    return Console(
        force_jupyter=False, force_terminal=True if in_notebook() else None
    )


class ProgressBar:
    """Rich's bar where it can be seen; in log files a line now and then.

    Args:
        unit (str): What is counted, 'images' say.
        total (int): How many there are.
        console (Console, optional): Where to show it; by default
            :func:`progress_console`.
        seconds (float): From one line of a log file to the next. Defaults to
            30.
        show (bool): Whether to show anything. Defaults to True.
    """

    def __init__(
        self,
        unit: str,
        total: int,
        console: Console | None = None,
        seconds: float = 30,
        show: bool = True,
    ) -> None:
        console = console or progress_console()
        self.unit, self.total, self.seconds = unit, total, seconds
        self.lines = show and not console.is_terminal
        self._bar = Progress(
            *Progress.get_default_columns(),
            MofNCompleteColumn(),
            TextColumn('{task.fields[note]}'),
            console=console,
            disable=self.lines or not show,
        )
        self._task = self._bar.add_task(f'  {unit}', total=total, note='')
        self._first = None

    def __enter__(self) -> 'ProgressBar':
        self._start = self._said = time.monotonic()
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(
        self, done: int, note: str = '', line: bool | None = None
    ) -> None:
        """Say how many are done.

        Args:
            done (int): How many, those of an earlier process too.
            note (str): What to say beside it.
            line (bool, optional): Whether to print a line, where there is no
                bar; by default the time decides.
        """
        if self._first is None:
            self._first = done  # what was there at the start took no time
        self._bar.update(self._task, completed=done, note=note)
        now = time.monotonic()
        if line is None:
            line = done == self.total or now - self._said >= self.seconds
        if self.lines and line:
            self._said = now
            width = len(str(self.total))
            each = (now - self._start) / max(1, done - self._first)
            eta = timedelta(seconds=int(each * (self.total - done)))
            said = f'  {self.unit} {done:{width}d}/{self.total}  {note}'
            print(f'{said.rstrip()}  eta {eta}', flush=True)
