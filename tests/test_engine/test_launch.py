# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""From a config file to a runner, before anything is built."""

from datetime import timedelta
from unittest import mock

import pytest
import torch
from mmengine.config import Config
from mmengine.fileio import FileClient
from torch import distributed

from mmmoca.engine import launch, processes
from mmmoca.engine.runners import ConsoleRunner

from ..images import CONFIGS, DEMO_CONFIG, point_to

CONFIG = CONFIGS / 'moca_vit-b16_200e.py'
SEGMENTATION = 'segmenter_moca-vit-b16_mask_own-masks-512x512.py'


def load(**options):
    return launch.load_config(CONFIG, cfg_options=options)


def test_none_leaves_a_hook_out():
    options = {f'default_hooks.{k}': None for k in ('step_log', 'logger')}
    hooks = load(**options).default_hooks
    assert 'step_log' not in hooks and 'codebook' in hooks
    assert hooks.logger is None  # MMEngine's own, which takes it


def test_paths_of_a_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path))
    cfg = launch.load_config(CONFIG, '~/runs')
    assert cfg.work_dir == f'{tmp_path}/runs'


def test_a_variable_of_the_config_is_no_setting():
    with pytest.raises(ValueError, match='data_root'):
        load(data_root='mine')


def test_a_part_that_a_run_has_left_out(tmp_path):
    """Its config has no k-NN any more, whose folder could be named."""
    own = CONFIGS / 'moca_vit-b16_own-images.py'
    launch.load_config(own).dump(tmp_path / 'left.py')
    with pytest.raises(ValueError, match='val_cfg'):
        launch.load_config(tmp_path / 'left.py', None, dict(knn_root='mine'))


def test_a_file_uses_the_shorthands_that_it_inherits(tmp_path):
    own = CONFIGS / 'moca_vit-b16_own-images.py'
    file = tmp_path / 'child.py'
    file.write_text(f"_base_ = '{own}'\nepochs = 3\nbatch_size = 16\n")
    cfg = launch.load_config(file)
    assert cfg.train_cfg.max_epochs == 3 and 'epochs' not in cfg
    assert cfg.train_dataloader.batch_size == 16
    cfg = launch.load_config(file, cfg_options=dict(epochs=5))
    assert cfg.train_cfg.max_epochs == 5


@pytest.mark.parametrize(
    'name',
    ['moca/moca_vit-b16_own-images', 'demo/moca_vit-tiny_own-images'],
)
def test_a_file_names_its_images_by_the_whole_key(name, tmp_path):
    """The variable that the base's data_root is does not replace it."""
    own = CONFIGS / f'{name}.py'
    file = tmp_path / 'child.py'
    file.write_text(
        f"_base_ = '{own}'\n"
        "train_dataloader = dict(dataset=dict(data_root='mine'))\n"
    )
    for config, expected in ((own, 'data/images/'), (file, 'mine')):
        cfg = launch.load_config(config)
        assert cfg.train_dataloader.dataset.data_root == expected


def test_the_bank_of_cifar_10_lies_where_its_images_do():
    cfg = launch.load_config(CONFIGS / 'moca_vit-s4_200e_cifar10.py')
    bank = cfg.val_cfg.bank_dataloader.dataset
    assert (bank.data_root, bank.data_prefix) == ('data/cifar10', '')


@pytest.mark.parametrize('quiet', [False, True])
def test_the_console_is_for_the_run(root, tmp_path, capsys, quiet):
    options = {'train_dataloader.num_workers': 0, 'log_level': 'INFO'}
    cfg = launch.load_config(DEMO_CONFIG, str(tmp_path), options)
    point_to(cfg, root)
    cfg.experiment_name = f'console_{quiet}'
    runner = launch.build_runner(cfg, quiet)
    FileClient()
    runner.logger.info('some information')
    runner.logger.warning('a warning')
    (file,) = tmp_path.glob('*/*.log')
    console, log = capsys.readouterr().out, file.read_text()
    assert 'a warning' in console
    assert ('some information' in console) != quiet
    for dump in ('System environment', 'Config:', 'Hooks will', 'FileClient'):
        assert dump in log and dump not in console


def test_missing_files_of_the_config_are_said_first(tmp_path, monkeypatch):
    def refused(message, *stages, **options):
        with pytest.raises(FileNotFoundError, match=message):
            launch.check_files(load(**options), *stages)

    monkeypatch.chdir(tmp_path)
    place, kind = (
        f'train_dataloader.dataset.{k}' for k in ('data_root', 'type')
    )
    refused(f'no folder data/imagenet/: .*{place}=DIR', 'train')
    (tmp_path / 'data' / 'imagenet').mkdir(parents=True)
    launch.check_files(load(), 'train', 'val')
    moved = {'val_cfg.data_root': 'other'}
    refused('no folder other: .*val_cfg.data_root=DIR', 'val', **moved)
    launch.check_files(load(**moved), 'train')
    launch.check_files(load(**{place: 's3://bucket'}), 'train')
    shards = {kind: 'mmmoca.ImageShards'}
    refused('no folder none: .*', 'train', **shards, **{place: 'none'})
    launch.check_files(load(**shards, **{place: '{0..9}.tar'}), 'train')
    for name in ('a.pth', 'mmmoca-student://a.pth'):
        refused('load_from: there is no checkpoint a.pth', load_from=name)
    for name in ('s3://bucket/a.pth', 'mmmoca-teacher://https://there/a.pth'):
        launch.check_files(load(load_from=name))


def test_dataloaders_get_defaults_that_work(tmp_path):
    # Inheritance marks all dicts that have a type.
    (tmp_path / 'child.py').write_text(
        f"_base_ = '{CONFIG}'\n"
        "train_dataloader = dict(collate_fn=dict(type='default_collate', "
        "_scope_='mmmoca'), num_workers=0, pin_memory=False)\n"
        'val_cfg = dict(bank_dataloader=dict(num_workers=3))\n'
    )
    cfg = launch.load_config(tmp_path / 'child.py')
    train, bank = cfg.train_dataloader, cfg.val_cfg.bank_dataloader
    assert not train.persistent_workers and not train.pin_memory
    assert bank.persistent_workers and bank.num_workers == 3
    for loader in (train, bank):
        assert loader.collate_fn == dict(type='default_collate')
    cfg = launch.load_config(CONFIGS / 'segmentation' / SEGMENTATION)
    assert 'collate_fn' not in cfg.val_dataloader


@pytest.mark.parametrize(
    ('device', 'meant'),
    [('cpu', r'tools/dist_train\.sh'), ('mps', 'leave it out')],
)
def test_processes_without_cuda(device, meant, monkeypatch):
    monkeypatch.setattr(launch, 'get_device', lambda: device)
    with pytest.raises(RuntimeError, match=meant):
        launch.build_runner(Config(dict(launcher='slurm')))


def test_cpu_processes_wait_as_long_as_the_config_says(monkeypatch):
    join = mock.Mock()
    monkeypatch.setattr(distributed, 'init_process_group', join)
    monkeypatch.setattr(launch, 'get_device', lambda: 'cpu')
    env_cfg = dict(dist_cfg=dict(backend='nccl', timeout=90))
    cfg = Config(dict(launcher='pytorch', env_cfg=env_cfg))
    monkeypatch.setattr(launch, 'ConsoleRunner', mock.Mock())
    launch.build_runner(cfg)
    join.assert_called_once_with('gloo', timeout=timedelta(seconds=90))
    assert cfg.env_cfg.dist_cfg == dict(backend='gloo', timeout=90)
    assert processes.collective_timeout(dict(env_cfg={})) is None


def test_gradients_lie_in_the_buckets_of_ddp(monkeypatch):
    """What the model is wrapped by, and SyncBN, on processes of CPUs."""
    wrap = mock.Mock()
    monkeypatch.setattr('mmengine.runner.Runner.wrap_model', wrap)
    monkeypatch.setattr(
        'mmmoca.engine.runners.console_runner.get_device', lambda: 'cpu'
    )
    cfg = dict(find_unused_parameters=True)
    runner = mock.Mock(spec=ConsoleRunner, distributed=True, cfg=cfg)
    runner.__class__ = ConsoleRunner
    for own in (None, dict(type='Own', a=1)):
        layers = torch.nn.Sequential(torch.nn.SyncBatchNorm(2))
        ConsoleRunner.wrap_model(runner, own, layers)
        wrapper, model = wrap.call_args.args[-2:]
        assert not isinstance(model[0], torch.nn.SyncBatchNorm)
        assert wrapper == own or (
            wrapper['gradient_as_bucket_view']
            and wrapper['find_unused_parameters']
            and wrapper['device_ids'] is None
        )
