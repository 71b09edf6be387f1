# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

import os
from string import Template

import pytest

from processes import own_process


@pytest.mark.processes
def test_calls_run_in_one_other_process(monkeypatch):
    monkeypatch.setenv('HERE', 'here')
    with own_process(
        os.popen, 'echo $PPID $HERE $THERE', environment=dict(THERE='there')
    ) as ask:
        parent, *variables = ask('read').split()
    assert int(parent) != os.getpid()
    assert variables == ['here', 'there']
    assert 'THERE' not in os.environ
    with own_process(Template, '$a') as ask:
        assert ask('safe_substitute') == '$a'
        with pytest.raises(KeyError):
            ask('substitute')
