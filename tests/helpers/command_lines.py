# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks command lines as if no heavy package were installed."""

import json
from pathlib import Path

from .tools import python

# Prints how each command line ends.
RUN = """
import contextlib, io, json, runpy, sys
from pathlib import Path

sys.modules.update(dict.fromkeys(
    'matplotlib mmcv mmdet mmengine mmpretrain mmseg sklearn torch'.split()
))
ends = []
for tool, *arguments in json.loads(sys.argv[1]):
    sys.argv = [tool, *arguments]
    sys.path.insert(0, str(Path(tool).parent))
    output = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            runpy.run_path(tool, run_name='__main__')
    except (Exception, SystemExit) as error:
        ends.append(f'{output.getvalue()}{type(error).__name__}: {error}')
    del sys.path[0]
print(json.dumps(ends))
"""


def ends_alone(lines, folder):
    """Run lines without the stack; return each one's output and exception."""
    run = python('-c', RUN, json.dumps(lines), cwd=folder)
    return json.loads(run.stdout)


def check_help(programs, folder):
    """Check that programs print their help without the stack."""
    lines = [[f'{program}', '--help'] for program in programs]
    for (program, _), end in zip(lines, ends_alone(lines, folder)):
        assert end.startswith(f'usage: {Path(program).name}'), end
        assert end.endswith('SystemExit: 0'), end
