# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

from pathlib import Path

from tests.helpers.command_lines import check_help

PROJECT = Path(__file__).parents[1]
COMMANDS = 'attention', 'banks', 'data', 'embedding', 'gpu', 'kernels'
COMMANDS += 'listing', 'matrix', 'step'


def test_help_needs_no_stack(tmp_path):
    check_help([str(PROJECT / f'{name}.py') for name in COMMANDS], tmp_path)
