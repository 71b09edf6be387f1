# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What our reader lets in beside tensors."""

import zipfile
from concurrent.futures import ThreadPoolExecutor
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

from mmmoca.checkpoints import CheckpointError, read_checkpoint


def test_checkpoints_of_mmengine(tmp_path):
    buffer = HistoryBuffer()
    for value in (3.0, 1.0, 2.0):
        buffer.update(value)
    content = {
        'message_hub': {
            'log_scalars': {'loss': buffer},
            'runtime_info': {'lr': np.float64(0.5), 'flag': np.bool_(True)},
        },
        # As a saved state of NumPy's or PyTorch's generator.
        'rng': (np.arange(5, dtype=np.uint32), np.zeros(2, np.int8)),
        'state_dict': {'weight': torch.arange(3.0)},
    }
    path = tmp_path / 'latest.pth'
    torch.save(content, path)
    with pytest.raises(UnpicklingError, match='HistoryBuffer'):
        torch.load(path, weights_only=True)
    for file in (path, _as_of_other_numpy(path)):
        loaded = read_checkpoint(file)
        loss = loaded['message_hub']['log_scalars']['loss']
        assert loss.mean() == 2.0 and loss.statistics('min') == 1.0
        assert loaded['message_hub']['runtime_info']['lr'] == 0.5
        assert loaded['rng'][0].tolist() == [0, 1, 2, 3, 4]
        assert loaded['rng'][0].dtype == np.uint32
        assert loaded['state_dict']['weight'].tolist() == [0.0, 1.0, 2.0]


def test_threads_read_at_the_same_time(tmp_path):
    before = torch.serialization.get_safe_globals()
    path = tmp_path / 'latest.pth'
    buffer = HistoryBuffer(np.ones(9), np.ones(9))
    torch.save({str(i): buffer for i in range(50)}, path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read_checkpoint, [path] * 40))
    assert all(len(content) == 50 for content in found)
    assert torch.serialization.get_safe_globals() == before


class _Lookup:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return getattr, self.arguments


@pytest.mark.parametrize('allowed', [[], [getattr, np.ndarray]])
def test_other_contents_are_refused(tmp_path, allowed):
    """Whatever the process has allowed `torch.load` to call."""
    content = _Lookup(np.ndarray, 'tofile')
    torch.save({'state_dict': content}, tmp_path / 'foreign.pth')
    before = torch.serialization.get_safe_globals()
    torch.serialization.add_safe_globals(allowed)
    try:
        with pytest.raises(CheckpointError):
            read_checkpoint(tmp_path / 'foreign.pth')
        now = torch.serialization.get_safe_globals()
        assert set(now) == {*before, *allowed}
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _as_of_other_numpy(path):
    """Copy of a checkpoint as written by NumPy 1 (or by 2, on 1)."""
    here, there = b'cnumpy._core.multiarray\n', b'cnumpy.core.multiarray\n'
    target = path.with_suffix('.other')
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, 'w') as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith('/data.pkl'):
                if here not in data:
                    here, there = there, here
                assert here in data
                data = data.replace(here, there)
            new.writestr(name, data)
    return target
