# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a program of several processes ends with."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ..helpers.distributed import free_port
from ..helpers.images import write_images
from ..helpers.tools import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def start(processes, work_dir, *options):
    """``tools/dist_train.sh`` with the tiny config."""
    binary = os.path.dirname(sys.executable)
    env = dict(os.environ, PATH=f'{binary}:{os.environ["PATH"]}')
    env['PORT'] = str(free_port())
    command = [f'{ROOT}/tools/dist_train.sh', 'moca_vit-tiny_own-images']
    command += [str(processes), '--work-dir', work_dir]
    return subprocess.Popen(
        [*command, '--cfg-options', *options],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_refused_run_ends_with_its_own_line(tmp_path):
    run = start(2, tmp_path / 'work', f'data_root={tmp_path}/nowhere')
    (*_, last) = run.communicate(timeout=100)[1].splitlines()
    assert run.returncode == 2
    assert last.startswith('train.py: error: ') and 'nowhere' in last


def test_a_stopped_run_ends_with_its_status(tmp_path):
    """That all processes stop together is tested in test_checkpoints.py."""
    write_images(tmp_path / 'images', train=6, val=1)
    work = tmp_path / 'work'
    options = f'data_root={tmp_path}/images/train', 'epochs=1000'
    more = 'batch_size=4', 'train_dataloader.num_workers=0'
    more += ('default_hooks.checkpoint.interval=1',)
    run = start(1, work, *options, *more)
    end = time.monotonic() + 100
    while not [*work.glob('epoch_*.pth')]:
        assert run.poll() is None and time.monotonic() < end
        time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    (*_, last) = run.communicate(timeout=100)[1].splitlines()
    assert run.returncode == os.EX_TEMPFAIL
    assert '--resume' in last and (work / 'interrupted.pth').is_file()
