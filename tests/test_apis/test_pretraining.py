# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining in one call does what tools/train.py does."""

import random
import signal
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from mmengine import fileio
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmpretrain.registry import DATASETS

import mmmoca
from mmmoca.checkpoints import CheckpointError, read_checkpoint
from mmmoca.engine import training
from mmmoca.engine.config import read_run
from mmmoca.models import MOCA

from ..helpers.errors import raises
from ..helpers.images import CONFIGS
from ..helpers.runs import assert_same, tiny_run

CONFIG = 'moca_vit-s16_own-images'
RUN = dict(epochs=1, batch_size=16)
OWN = {'optim_wrapper.optimizer.lr': 1e-4, 'model.image_embedding': 'cls'}


@pytest.fixture(scope='module')
def run(root, tmp_path_factory):
    """Return the folder of a run, and the checkpoint that it returned."""
    out = tmp_path_factory.mktemp('run')
    settings = RUN | tiny_run() | OWN
    return out, mmmoca.pretrain(root / 'train', out, **settings)


@pytest.mark.slow
def test_is_the_run_of_the_tool(root, run, tmp_path):
    out, last = run
    assert last == out / 'epoch_1.pth'
    options = dict(data_root=str(root / 'train'), **RUN, **tiny_run(), **OWN)
    file = CONFIGS / f'{CONFIG}.py'
    training.run(read_run(file, options, work_dir=str(tmp_path)))
    first, second = (
        read_checkpoint(folder / 'epoch_1.pth')['state_dict']
        for folder in (out, tmp_path)
    )
    assert_same(first, second)
    saved = Config.fromfile(out / f'{CONFIG}.py')
    assert saved.optim_wrapper.optimizer.lr == 1e-4
    assert saved.model.codebook.num_words == 64  # from the rules
    encoder = mmmoca.load(last, device='cpu')
    assert encoder.metainfo['num_heads'] == 2
    images = encoder.preprocessing
    assert (images.channel_order, images.source) == ('rgb', 'config')
    assert encoder.feature == 'cls'  # by which the run is judged
    assert encoder.embed(root / 'val').avg.shape == (15, 32)


@pytest.mark.slow
def test_goes_on_with_a_bar(root, run, capsys, monkeypatch):
    """In a notebook, a progress bar replaces the log."""
    out, last = run
    images, longer = root / 'train', dict(epochs=2, batch_size=16)
    with raises(CheckpointError, str(out)):
        mmmoca.pretrain(images, out, **longer, **tiny_run())
    monkeypatch.setattr('mmmoca.apis.pretraining.in_notebook', lambda: True)
    options = tiny_run() | {'default_hooks.logger.interval': 3}
    del options['log_level']
    again = mmmoca.pretrain(images, out, **longer, resume=True, **options)
    printed = capsys.readouterr()
    assert '  step 6/6  loss ' in printed.out
    assert 'INFO' not in printed.out + printed.err
    saved = Config.fromfile(out / f'{CONFIG}.py')
    assert 'progress' not in saved.default_hooks
    meta = read_checkpoint(again)['meta']
    assert meta['epoch'] == 2
    assert meta['mmmoca']['feature'] == 'avg'


@pytest.mark.parametrize(
    'settings, error, key',
    [
        (dict(data='nowhere'), FileNotFoundError, 'nowhere'),
        (dict(knn='nowhere'), FileNotFoundError, 'knn'),
        (dict(init='a.pth'), FileNotFoundError, 'a.pth'),
        (dict(init='a', resume='b'), ValueError, 'b'),
        (dict(epochs=0), ValueError, 'max_epochs=0'),
        (dict(epochs=1.5), ValueError, 'epochs=1.5'),
        (dict(config='no_vit'), FileNotFoundError, 'no_vit'),
        (dict(config='moca_vit-b16_200e'), ValueError, 'own-images'),
        (dict(epoch=3), ValueError, 'epochs'),
        (dict(batch_size=4096), ValueError, '48'),
    ],
)
def test_wrong_settings(root, tmp_path, monkeypatch, settings, error, key):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, 'build_runner', None)  # not reached
    settings = dict(data=root / 'train', batch_size=16) | settings
    with raises(error, key):
        mmmoca.pretrain(out='work', **settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_after_an_exception(root, tmp_path, monkeypatch):
    loss = mock.Mock(side_effect=RuntimeError('of a GPU'))
    monkeypatch.setattr('mmmoca.models.MOCA.loss', loss)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError):
        mmmoca.pretrain(root / 'train', tmp_path, **RUN, **tiny_run())
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_ctrl_c_leaves_the_caller_as_it_was(root, tmp_path, monkeypatch):
    loss = MOCA.loss

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return loss(*args)

    def numbers():
        return random.random(), np.random.random(), torch.rand(1).item()

    def seed():
        for start in (random.seed, np.random.seed, torch.manual_seed):
            start(1)

    seed()
    expected = numbers()
    seed()
    monkeypatch.setattr(MOCA, 'loss', interrupted)
    with pytest.raises(KeyboardInterrupt):
        mmmoca.pretrain(root / 'train', tmp_path, **RUN, **tiny_run())
    encoder = mmmoca.load(tmp_path / 'interrupted.pth', device='cpu')
    encoder.embed(root / 'val', 8, num_workers=1)
    assert numbers() == expected


def test_lists_and_opened_sets(root, tmp_path, monkeypatch):
    """A run gets the images of a list or an opened set, in the same order."""
    train = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr('mmmoca.apis.pretraining.run', train)
    folder = root / 'train'
    paths = sorted(map(str, folder.glob('*/*.jpg')))
    datasets = pytest.importorskip('datasets')
    rows = datasets.Dataset.from_dict(dict(image=paths))
    rows = rows.cast_column('image', datasets.Image()).with_transform(len)
    for data, count in (([folder, paths[0]], 49), (paths, 48), (rows, 48)):
        with (
            DefaultScope.overwrite_default_scope('mmseg'),
            pytest.raises(KeyboardInterrupt),
        ):
            mmmoca.pretrain(data, tmp_path, **RUN, **tiny_run())
        dataset = train.call_args.args[0].train_dataloader.dataset
        with DefaultScope.overwrite_default_scope('mmpretrain'):
            found = DATASETS.build(dataset)
        contents = [fileio.get(image['img_path']) for image in found.data_list]
        expected = [Path(path).read_bytes() for path in [*paths, paths[0]]]
        assert contents == expected[:count]
    with raises(TypeError, 'bytes'):
        mmmoca.pretrain([b'png'], tmp_path)
    odd = tmp_path / '\udcff.jpg'
    odd.touch()
    for refused in ([], rows.select([]), [odd]):
        with pytest.raises(ValueError):
            mmmoca.pretrain(refused, tmp_path)
