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


def test_without_the_stack(tmp_path):
    """``--help`` answers, and work starts with a check of the stack."""
    (tmp_path / 'FILE').touch()
    lines = [[f'{tool}', '--help'] for tool in TOOLS.rglob('[!_]*.py')]
    lines.append([f'{TOOLS}/train.py', 'demo/moca_vit-tiny_textures.py'])
    lines.append([f'{TOOLS}/embed.py', 'FILE', 'images', 'out.npy'])
    run = python('-c', RUN, json.dumps(lines), cwd=tmp_path)
    ends = json.loads(run.stdout)
    for (tool, *arguments), end in zip(lines, ends, strict=True):
        if arguments == ['--help']:
            assert end.startswith(f'usage: {Path(tool).name}'), end
            assert end.endswith('SystemExit: 0'), end
        else:
            assert end.startswith('ImportError: mmmoca '), end
            assert 'needs torch>=2.6 (not installed), mmengine' in end
