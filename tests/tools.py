# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The programs of ``tools/``, without a process of their own."""

import contextlib
import io
import runpy
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]


def run_tool(path, *arguments, code=0):
    """Run a program by its command line; what it printed.

    A new process would spend ten seconds on its imports.

    Args:
        path (str): Of the program, from the root of the repository on.
        *arguments: Of its command line.
        code (int): The exit status that it must end with.

    Returns:
        str: Of both streams.
    """
    script = ROOT / path
    output = io.StringIO()
    loaded = set(sys.modules)
    end = 0
    with (
        mock.patch.object(sys, 'argv', [str(script), *map(str, arguments)]),
        mock.patch.object(sys, 'path', [str(script.parent), *sys.path]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            runpy.run_path(str(script), run_name='__main__')
        except SystemExit as stop:
            end = stop.code or 0
    # Modules beside the programs have names that others have, too.
    for name in set(sys.modules) - loaded:
        file = getattr(sys.modules[name], '__file__', None) or ''
        if file.startswith(f'{ROOT / "tools"}'):
            del sys.modules[name]
    assert end == code, output.getvalue()[-3000:]
    return output.getvalue()
