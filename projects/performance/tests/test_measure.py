# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

import itertools
import os
from functools import partial
from multiprocessing import get_context

import pytest
import torch

import measure
from measure import measure_apart, median_seconds, own_mebibytes

SERVER = 'forkserver'


def test_forms_take_turns():
    calls = []
    forms = {name: partial(calls.append, name) for name in 'ab'}
    seconds = median_seconds(forms, 2, clock=itertools.count().__next__)
    assert seconds == dict(a=1, b=1)
    assert ''.join(calls) == 'ab' * 3


def test_memory_of_a_call():
    before = torch.zeros(2**20)
    taken = own_mebibytes(lambda: (before + 1).sqrt() * 2, 'cpu')
    assert taken == pytest.approx(8, abs=0.1)


@pytest.mark.processes
def test_memory_and_time_have_a_process_each(tmp_path, monkeypatch):
    # This saves time, since the fork server has already imported PyTorch.
    monkeypatch.setattr(measure, 'get_context', lambda _: get_context(SERVER))
    calls = tmp_path / 'calls'
    build = partial(partial, os.system, f'echo $PPID >> {calls}')
    (cost,) = measure_apart({'a': build}, 'cpu', repeats=2).values()
    assert cost.seconds > 0
    assert cost.mebibytes == 0
    pids = calls.read_text().split()
    # First process: a warm-up call, and a call whose memory is measured.
    # Second process: a warm-up call, and two calls that are timed.
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 3]
    assert str(os.getpid()) not in pids
