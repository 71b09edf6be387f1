# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What our reader accepts besides tensors."""

import datetime
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from safetensors.torch import save_file

from mmmoca.checkpoints import (
    CheckpointError,
    read_checkpoint,
    write_checkpoint,
)

from ..helpers.errors import raises
from ..helpers.payloads import Call


def test_checkpoints_of_mmengine(tmp_path):
    buffer = HistoryBuffer()
    for value in (3.0, 1.0, 2.0):
        buffer.update(value)
    content = dict(
        loss=buffer,
        numbers=[np.float64(0.5), np.bool_(True)],
        # Saved states of NumPy's and PyTorch's generators look like this.
        rng=(np.arange(5, dtype=np.uint32), np.zeros(2, np.int8)),
        weight=torch.arange(3.0),
    )
    path = tmp_path / 'latest.pth'
    torch.save(content, path)
    with pytest.raises(UnpicklingError, match='HistoryBuffer'):
        torch.load(path, weights_only=True)
    # NumPy 2 and NumPy 1 name a module differently.
    other = tmp_path / 'other.pth'
    torch.save(content, other, _use_new_zipfile_serialization=False)
    data = other.read_bytes()
    names = b'cnumpy._core.multiarray\n', b'cnumpy.core.multiarray\n'
    here, there = sorted(names, key=data.find, reverse=True)
    assert here in data
    other.write_bytes(data.replace(here, there))
    for file, lazy in ((path, True), (other, False)):
        loaded = read_checkpoint(file, lazy)
        assert loaded['loss'].mean() == 2 and loaded['loss'].min() == 1
        assert loaded['numbers'] == [0.5, True]
        assert loaded['rng'][0].tolist() == [0, 1, 2, 3, 4]
        assert loaded['rng'][0].dtype == np.uint32
        assert loaded['weight'].tolist() == [0, 1, 2]


def test_what_the_process_allows_does_not_count(tmp_path):
    """`torch.load` would call a function that the process allows.

    tests/robustness checks functions that are not allowed.
    """
    content = Call(getattr, np.ndarray, 'tofile')
    torch.save({'state_dict': content}, tmp_path / 'foreign.pth')
    before = torch.serialization.get_safe_globals()
    torch.serialization.add_safe_globals([getattr, np.ndarray])
    allowed = {*torch.serialization.get_safe_globals()}
    try:
        with pytest.raises(CheckpointError):
            read_checkpoint(tmp_path / 'foreign.pth')
        assert {*torch.serialization.get_safe_globals()} == allowed
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


EYE, BIG = torch.eye(3), torch.zeros(10**5)
UNUSABLE = {
    "'U3'": np.str_('abc'),
    'datetime.date': datetime.date(2020, 1, 1),
    'expanded tensor: (1000000, 1000000)': EYE[0, :1].expand(10**6, 10**6),
    'device meta': EYE.to('meta'),
    'sparse': EYE.to_sparse(),
    'nested': torch.nested.nested_tensor([EYE[0, :2], EYE[0]]),
    'quantised': torch.quantize_per_tensor(EYE, 0.1, 0, torch.qint8),
    'tensors of': [BIG.view(1, -1) for _ in range(99)],
}


@pytest.mark.parametrize('reason', UNUSABLE)
def test_what_no_reader_can_use(tmp_path, reason):
    """Unusable values are refused wherever they are; errors name the file."""
    path = tmp_path / 'odd.pth'
    torch.save(dict(state_dict=dict(a=EYE), more=[UNUSABLE[reason]]), path)
    for lazy in (False, True):
        with raises(CheckpointError, 'odd.pth', reason):
            read_checkpoint(path, lazy)


@pytest.mark.parametrize(
    'record',
    [
        'none',
        dict(num_heads='six'),
        dict(grid=['a', 'b']),
        dict(grid=[24]),
        dict(grid=[4.0, 6.0]),
        dict(preprocessing=dict(mean=0.5)),
        dict(
            preprocessing=dict(pipeline=[dict(type='CenterCrop', crop_size=0)])
        ),
    ],
)
def test_broken_records(tmp_path, record):
    """Broken records are found in both formats."""
    content = dict(state_dict=dict(a=EYE), meta=dict(mmmoca=record))
    for file in ('a.pth', 'a.safetensors'):
        write_checkpoint(content, tmp_path / file)
        with raises(CheckpointError, file, 'meta.mmmoca'):
            read_checkpoint(tmp_path / file)
    save_file(dict(a=EYE), tmp_path / 'b.safetensors', dict(mmmoca='{'))
    with raises(CheckpointError, 'b.safetensors', 'mmmoca'):
        read_checkpoint(tmp_path / 'b.safetensors')
