# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Two processes on one machine get checkpoints from various places."""

import hashlib
import os
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from mmengine.dist import get_rank
from torch import hub

from mmmoca.checkpoints import CheckpointError, local_file, read_checkpoint

from ..helpers.distributed import run_processes


class Slow(SimpleHTTPRequestHandler):
    """Serves a folder, and records the requests."""

    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        time.sleep(0.2)  # the other process has time to ask, too
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    """Serve a folder; return the folder and its address."""
    folder = tmp_path / 'served'
    folder.mkdir()
    handler = partial(Slow, directory=str(folder))
    Slow.asked.clear()
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f'http://127.0.0.1:{server.server_port}'
        server.shutdown()
        thread.join()


def fetch(home, sources):
    """Return the path and the number of each source, or its error."""
    os.environ.update(no_proxy='*')
    hub.set_dir(str(home))
    found = []
    for source in sources:
        if get_rank() == 1:
            time.sleep(0.1)  # this one asks later
        try:
            with local_file(source) as path:
                found.append((path, int(read_checkpoint(path)['a'])))
        except CheckpointError as error:
            found.append(str(error))
    return found


@pytest.mark.processes
def test_one_download_for_all_processes(tmp_path, served):
    """Both processes read one file; a missing file makes neither wait."""
    folder, url = served
    torch.save(dict(a=torch.tensor(3)), folder / 'a.pth')
    torch.save(dict(a=torch.tensor(4)), tmp_path / 'here.pth')
    digits = hashlib.sha256((folder / 'a.pth').read_bytes()).hexdigest()[:8]
    good, bad = f'hashed-{digits}.pth', 'hashed-01234567.pth'
    for name in (good, bad):
        (folder / name).write_bytes((folder / 'a.pth').read_bytes())
    sources = [f'{url}/{x}' for x in ('a.pth', 'none.pth', good, bad, 'a.pth')]
    sources += [(tmp_path / 'here.pth').as_uri(), 'y://none.pth']
    first, second = run_processes(fetch, 2, tmp_path / 'hub', sources)
    for index in (0, 2, 4, 5):
        assert first[index] == second[index]
        assert first[index][1] == (4 if index == 5 else 3)
    assert first[4] == first[0]
    for results in (first, second):
        for index in (1, 3, 6):
            assert os.path.basename(sources[index]) in results[index]
    # Each process looks for a missing file itself, since machines may differ.
    for name in ('a.pth', good):
        assert Slow.asked.count(f'/{name}') == 1
    written = {p.name for p in (tmp_path / 'hub').rglob('*') if p.is_file()}
    assert written == {'a.pth', good}
