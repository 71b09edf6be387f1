# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

import json
import subprocess
import sys
from pathlib import Path

from tests.test_tools.test_command_lines import RUN

PROJECT = Path(__file__).parents[1]
COMMANDS = 'data', 'downstream', 'objective', 'scaling', 'step'


def test_help_needs_no_stack():
    lines = [(str(PROJECT / f'{name}.py'), '--help') for name in COMMANDS]
    run = subprocess.run(
        [sys.executable, '-c', RUN, json.dumps(lines)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for path, (end, printed) in json.loads(run.stdout).items():
        assert end == 'SystemExit: 0', f'{path}: {end}'
        assert printed.startswith(f'usage: {Path(path).name}'), path
