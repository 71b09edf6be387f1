# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from tests.helpers.tools import load_tool


def test_each_fault_has_its_place_in_the_package():
    tool = load_tool('../projects/mutants/mutants')
    for old, new in tool.MUTANTS:
        assert old != new and tool.find(old) is not None, old
