# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How a program of several processes ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ..helpers.distributed import free_port
from ..helpers.tools import TOOLS

pytestmark = [pytest.mark.slow, pytest.mark.processes]


# This program ends as tools/train.py does.
STOPS = """
import argparse, os, pathlib, signal, sys, time
from _arguments import run_program

def work(args):
    signal.signal(signal.SIGINT, lambda *_: sys.exit(os.EX_TEMPFAIL))
    pathlib.Path(args.ready).touch()
    time.sleep(100)

parser = argparse.ArgumentParser()
parser.add_argument('ready')
run_program(parser, work)
"""


def start(command, **env):
    return subprocess.Popen(
        [*map(str, command)],
        env=os.environ | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_refused_run_ends_with_its_own_line(tmp_path):
    binary = os.path.dirname(sys.executable)
    env = dict(PATH=f'{binary}:{os.environ["PATH"]}', PORT=str(free_port()))
    command = [TOOLS / 'dist_train.sh', 'moca_vit-tiny_own-images', 2]
    command += ['--work-dir', tmp_path / 'work', '--cfg-options']
    run = start([*command, f'data_root={tmp_path}/nowhere'], **env)
    (*_, last) = run.communicate(timeout=100)[1].splitlines()
    assert run.returncode == 2
    assert last.startswith('train.py: error: ') and 'nowhere' in last


def test_a_stopped_run_ends_with_its_status(tmp_path):
    """test_checkpoints.py checks that all processes stop together."""
    ready, program = tmp_path / 'ready', tmp_path / 'stops.py'
    program.write_text(STOPS)
    launch = sys.executable, TOOLS / '_launch.py', '--nproc_per_node=1'
    port = f'--master_port={free_port()}'
    run = start([*launch, port, program, ready], PYTHONPATH=str(TOOLS))
    end = time.monotonic() + 100
    while not ready.exists():
        assert run.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    (*_, last) = run.communicate(timeout=100)[1].splitlines()
    assert run.returncode == os.EX_TEMPFAIL
    assert last.startswith('stops.py: ')
