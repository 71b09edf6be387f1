# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Runs of the demo's config, and what a run leaves behind."""

import copy
import itertools

import torch
from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.registry import RUNNERS
from mmpretrain.registry import MODELS

from mmmoca.engine.config import read_run
from mmmoca.engine.steps import unwrap_model

from .images import CONFIGS, DEMO_CONFIG, point_to

OWN_CONFIG = CONFIGS / 'moca_vit-s16_own-images.py'
COUNT = itertools.count()
NO_VALIDATION = dict(val_cfg=None, val_dataloader=None, val_evaluator=None)
# Options that shorten the paper's recipe to seconds, for the eight images of
# the fixture `workspace`.
SMALL = [
    'model.backbone.arch=deit-t',
    'model.codebook.num_words=64',
    'train_dataloader.batch_size=4',
    'train_dataloader.num_workers=0',
    'val_dataloader.num_workers=0',
    'test_dataloader.num_workers=0',
    'val_cfg.bank_dataloader.num_workers=0',
    'test_cfg.bank_dataloader.num_workers=0',
    'test_cfg.k=[2,4]',
    'param_scheduler=[]',
    'train_cfg.val_interval=1',
    'default_hooks.logger.interval=1',
]
# A small network, for tests in which it does not matter what a run learns.
NETWORK = {
    'model.backbone.arch': dict(
        embed_dims=64, num_layers=2, num_heads=2, feedforward_channels=128
    ),
    'model.backbone.tap_layer': 1,
    'model.neck.embed_dims': 32,
}
# Models are wrapped as in tools/train.py, but without GPUs.
DDP = dict(
    launcher='pytorch',
    model_wrapper_cfg=dict(
        type='MMDistributedDataParallel',
        device_ids=None,
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
    ),
)


def by_epochs(count):
    """Return options of a run that sees each image once per epoch."""
    loop = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=count)
    sampler = {'train_dataloader.sampler.infinite': False}
    return {'train_cfg': loop} | sampler | NO_VALIDATION


def tiny_run():
    """Return options that shorten a run on one's own images to seconds."""
    arch = dict(embed_dims=32, num_layers=2, num_heads=2)
    return {
        'model.backbone.arch': dict(
            arch, _delete_=True, feedforward_channels=32
        ),
        'model.backbone.tap_layer': 1,
        'model.neck.embed_dims': 32,
        'train_dataloader.num_workers': 0,
        'log_level': 'ERROR',
        # Runners of one process need different names.
        'experiment_name': f'tiny_{next(COUNT)}',
    }


def own_config(root, work_dir='', **options):
    """Return a tiny version of the own-images config, for a folder.

    By default, the run writes to ``work`` in this folder.
    """
    own = dict(data_root=str(root), epochs=4, batch_size=8)
    work_dir = str(work_dir or root / 'work')
    options = own | tiny_run() | options
    return read_run(OWN_CONFIG, options, work_dir=work_dir)


def demo_model(**options):
    """Build the demo's model, always the same; options have dotted keys."""
    cfg = Config.fromfile(DEMO_CONFIG)
    cfg.merge_from_dict(options)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model


def demo_runner(root, name, **options):
    """Return a runner of :func:`demo_config` that has not trained yet."""
    return RUNNERS.build(demo_config(root, name, **options))


def demo_config(root, name, **options):
    """Return the demo's config with a smaller network and batches of eight.

    Several processes share the images and run under DDP.

    Args:
        root (Path): Image folders, see :func:`.images.write_images`.
        name (str): Name of the work dir, a subfolder of ``root``.
        **options: Overrides with dotted keys.

    Returns:
        Config: The config, for a runner.
    """
    cfg = Config.fromfile(DEMO_CONFIG)
    point_to(cfg, root)
    processes = get_world_size()
    workers = options.get('train_dataloader.num_workers', 0)
    settings = {
        'work_dir': f'{root}/{name}',
        # Runners of one process need different names.
        'experiment_name': f'demo_{next(COUNT)}',
        'train_dataloader.batch_size': 8 // processes,
        'train_dataloader.persistent_workers': workers > 0,
        'model.codebook.num_new_words': 4,  # of eight images per step
        'log_level': 'ERROR',
        'runner_type': 'mmmoca.ConsoleRunner',
        **NETWORK,
    }
    if processes > 1:
        settings |= DDP
    # MMEngine removes `_delete_` from what it merges.
    cfg.merge_from_dict(copy.deepcopy(settings | options))
    return cfg


def scalars(runner, name):
    """Return what a run logged under a name, as an array."""
    return runner.message_hub.get_scalar(name).data[0]


def state_of(runner):
    """Return everything that training changes: tensors by name."""
    moments = runner.optim_wrapper.state_dict()['state']
    return unwrap_model(runner.model).state_dict() | {
        f'{parameter}.{name}': value
        for parameter, values in moments.items()
        for name, value in values.items()
    }


def assert_same(first, second):
    """Check that two states are the same bit for bit."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
