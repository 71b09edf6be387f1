# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files from outside run no code and touch nothing outside their folder."""

import pickle
import re
import zipfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from mmengine import fileio
from mmengine.fileio import LocalBackend
from mmengine.logging import MessageHub
from mmengine.runner import checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

import mmmoca
from mmmoca.checkpoints import CheckpointError, guarded, read_checkpoint
from mmmoca.engine import AtomicCheckpointHook

from ..helpers.payloads import FORMS, Call, write_payload
from ..helpers.runs import NO_VALIDATION, demo_runner
from ..helpers.tools import ROOT, TOOLS


@pytest.mark.parametrize(
    'read',
    [
        lambda path: CheckpointLoader.load_checkpoint(guarded(path)),
        read_checkpoint,
        lambda path: read_checkpoint(path, lazy=True),
    ],
    ids=['mmengine', 'mmmoca', 'lazy'],
)
@pytest.mark.parametrize('form', FORMS)
def test_no_checkpoint_runs_code(tmp_path, read, form):
    path, marker = tmp_path / 'a.pth', tmp_path / 'it_ran'
    write_payload(path, marker, form)
    # PyTorch calls allowed functions with any arguments.
    errors = CheckpointError, pickle.UnpicklingError, TypeError
    with pytest.raises(errors) as error:
        read(str(path))
    assert not marker.exists()
    assert form == 'lookup' or 'mkdir' in str(error.value)


def test_only_the_reader_reads_pickles():
    """All other code reads checkpoints only with mmmoca.checkpoints."""
    reads = re.compile(
        r'torch\.load\(|pickle\.loads?\(|allow_pickle=True'
        r'|mmengine\S* import .*load_checkpoint'
    )
    files = [*(ROOT / 'mmmoca').rglob('*.py'), *TOOLS.rglob('*.py')]
    assert not [
        path
        for path in files
        if 'checkpoints' not in path.parts and reads.search(path.read_text())
    ]


def test_no_run_without_our_hooks_runs_code(root, tmp_path):
    path, marker = tmp_path / 'a.pth', tmp_path / 'it_ran'
    write_payload(path, marker)
    hooks = dict(default_hooks=dict(_delete_=True), load_from=str(path))
    with pytest.raises(CheckpointError):
        demo_runner(root, 'unguarded', **NO_VALIDATION, **hooks).train()
    assert not marker.exists()


def test_a_url_is_read_by_our_reader(tmp_path, monkeypatch):
    """The config in the file, which MMEngine would run, is dropped."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    content = dict(meta=dict(config='import os', iter=3))

    def download(url, path, digits):
        torch.save(content, path)

    monkeypatch.setattr('torch.hub.download_url_to_file', download)
    for _ in range(2):
        loaded = CheckpointLoader.load_checkpoint(
            guarded('https://there/a.pth')
        )
        assert loaded['meta'] == dict(iter=3)
        content = None  # the file is there and is not downloaded again
    assert guarded(guarded('a.pth')) == guarded('a.pth') != 'a.pth'


@pytest.mark.parametrize(
    'scheme', ['x', 's3', 'https', 'torchvision', 'mmcls']
)
def test_a_folder_named_like_a_scheme(tmp_path, monkeypatch, scheme):
    """Files in a folder that is named like a scheme are read like others."""
    monkeypatch.chdir(tmp_path)
    folder, marker = Path(f'{scheme}:'), tmp_path / 'it_ran'
    folder.mkdir()
    write_payload(folder / 'evil.pth', marker)
    for path in (f'{scheme}://evil.pth', f'{tmp_path}/{scheme}://evil.pth'):
        with pytest.raises(CheckpointError):
            CheckpointLoader.load_checkpoint(guarded(path))
        with pytest.raises(CheckpointError):
            mmmoca.load(path)
    assert not marker.exists()


class Vault(LocalBackend):
    """Simulates a remote store: ``s3://NAME`` is a file in a folder."""

    def __init__(self, folder):
        self.folder = folder

    @contextmanager
    def get_local_path(self, filepath):
        yield self.folder / filepath.removeprefix('s3://')

    def get(self, filepath):
        return (self.folder / filepath.removeprefix('s3://')).read_bytes()


def test_what_a_remote_backend_returns_runs_no_code(tmp_path, monkeypatch):
    marker = tmp_path / 'it_ran'
    write_payload(tmp_path / 'evil.pth', marker)
    torch.save(dict(meta=dict(iter=3)), tmp_path / 'good.pth')
    vault = Vault(tmp_path)
    # MMEngine's own reader of these addresses would also call this backend.
    for place in (fileio.io, checkpoint):
        monkeypatch.setattr(place, 'get_file_backend', lambda *_, **__: vault)
    good = CheckpointLoader.load_checkpoint(guarded('s3://good.pth'))
    assert good == dict(meta=dict(iter=3))
    for address in ('s3://evil.pth', 's3://none.pth', 'y://none.pth'):
        with pytest.raises(CheckpointError):
            CheckpointLoader.load_checkpoint(guarded(address))
    assert not marker.exists()


def test_names_of_a_model_zoo_are_read_by_our_reader(monkeypatch):
    asked = []

    def download(url):
        asked.append(url)
        raise CheckpointError('no network')

    monkeypatch.setattr('mmmoca.checkpoints.read._download', download)
    for name in ('torchvision://resnet50', 'open-mmlab://vgg16_caffe'):
        with pytest.raises(CheckpointError):
            CheckpointLoader.load_checkpoint(guarded(name))
    with pytest.raises(CheckpointError):
        CheckpointLoader.load_checkpoint(guarded('torchvision://none'))
    assert [url.partition('://')[0] for url in asked] == ['https'] * 2


def test_no_checkpoint_makes_pointers_of_numbers(tmp_path):
    """Flags of an array's type could turn numbers into pointers."""
    dtype = Call(np.dtype, 'f4', False, True)
    dtype.call += ((3, '<', None, None, None, -1, -1, 63),)
    reconstruct = np.empty(0).__reduce__()[0]
    array = Call(reconstruct, np.ndarray, (0,), b'b')
    array.call += ((1, (2,), dtype, False, [1.0, 2.0]),)
    torch.save(dict(array=array), tmp_path / 'a.pth')
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path / 'a.pth')


def test_archives_that_unpack_to_much_more(tmp_path):
    torch.save(dict(a=torch.tensor(3)), tmp_path / 'small.pth')
    with (
        zipfile.ZipFile(tmp_path / 'small.pth') as small,
        zipfile.ZipFile(tmp_path / 'a.pth', 'w', zipfile.ZIP_DEFLATED) as big,
    ):
        for name in small.namelist():
            big.writestr(name, small.read(name))
    for lazy in (False, True):
        assert read_checkpoint(tmp_path / 'a.pth', lazy) == dict(a=3)
    with (
        zipfile.ZipFile(tmp_path / 'a.pth', 'a', zipfile.ZIP_DEFLATED) as big,
        pytest.warns(UserWarning, match='Duplicate name'),
    ):
        big.writestr('small/data/0', bytes(1 << 22))
    for lazy in (False, True):
        with pytest.raises(CheckpointError, match='a.pth'):
            read_checkpoint(tmp_path / 'a.pth', lazy=lazy)


def test_no_key_is_hashed_without_end(tmp_path):
    """Forty nested pairs take 300 bytes but have 2**40 parts."""
    twice = (b'q%ch%c\x86' % (i, i) for i in range(40))
    bomb = b'\x80\x02})' + b''.join(twice) + b'K\x03s.'
    torch.save({}, tmp_path / 'empty.pth')
    with (
        zipfile.ZipFile(tmp_path / 'empty.pth') as empty,
        zipfile.ZipFile(tmp_path / 'archive.pth', 'w') as archive,
    ):
        for name in empty.namelist():
            pickled = name.endswith('data.pkl')
            archive.writestr(name, bomb if pickled else empty.read(name))
    (tmp_path / 'pickle.pth').write_bytes(bomb)
    for name in ('archive.pth', 'pickle.pth'):
        with pytest.raises(CheckpointError):
            read_checkpoint(tmp_path / name)


def test_a_resumed_checkpoint_names_no_file_to_remove(tmp_path):
    """A run removes only files in its own folder."""
    run = tmp_path / 'run'
    run.mkdir()
    for named in (tmp_path / 'best_of_mine.pth', run / 'notes.pth'):
        hub = MessageHub.get_instance(f'hub_{named.name}')
        hub.update_info('best_ckpt', str(named))
        hub.update_info('keep_ckpt_ids', [3])
        runner = mock.Mock(message_hub=hub, work_dir=str(run))
        hook = AtomicCheckpointHook(save_best='top1', max_keep_ckpts=1)
        hook.before_train(runner)
        best = Path(hook.best_ckpt_path)
        assert best.parent == run and best.name.startswith('best_')
        assert list(hook.keep_ckpt_ids) == [3]
        hub.update_info('keep_ckpt_ids', ['/../../best_of_mine', 3])
        with pytest.raises(ValueError):
            AtomicCheckpointHook(max_keep_ckpts=1).before_train(runner)
