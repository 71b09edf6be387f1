# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All tools: ``--help`` without the stack, and work not without it."""

import json
from pathlib import Path

from ..tools import TOOLS, python

# As if nothing heavy were installed: how each command line ends.
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
        with contextlib.redirect_stdout(output):
            runpy.run_path(tool, run_name='__main__')
    except (Exception, SystemExit) as error:
        ends.append(f'{output.getvalue()}{type(error).__name__}: {error}')
    del sys.path[0]
print(json.dumps(ends))
"""


def ends_alone(lines, folder):
    """How command lines end without the stack: output and exception."""
    run = python('-c', RUN, json.dumps(lines), cwd=folder)
    return json.loads(run.stdout)


def check_help(programs, folder):
    lines = [[f'{program}', '--help'] for program in programs]
    for (program, _), end in zip(lines, ends_alone(lines, folder)):
        assert end.startswith(f'usage: {Path(program).name}'), end
        assert end.endswith('SystemExit: 0'), end


def test_help_needs_no_stack(tmp_path):
    check_help(TOOLS.rglob('[!_]*.py'), tmp_path)


def test_work_starts_with_a_check_of_the_installation(tmp_path):
    (tmp_path / 'FILE').touch()
    train = [f'{TOOLS}/train.py', 'demo/moca_vit-tiny_textures.py']
    embed = [f'{TOOLS}/embed.py', 'FILE', 'images', 'out.npy']
    for end in ends_alone([train, embed], tmp_path):
        assert end.startswith('ImportError: mmmoca '), end
        assert 'needs torch>=2.6 (not installed), mmengine' in end
