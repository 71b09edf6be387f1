# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run loads from a checkpoint, and what it refuses.

test_libraries tests files of all layouts, and test_start tests how a
pretraining starts from a file.
"""

import copy
import logging
import shutil

import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from mmpretrain.engine.optimizers import Lamb
from mmpretrain.models.utils import resize_pos_embed
from torch import nn

from mmmoca.checkpoints import CheckpointError

from ..helpers.builders import build_moca
from ..helpers.checkpoint_files import (
    checkpoint,
    classifier,
    load_as_a_run,
    mm_config,
    mm_vit,
    timm_state,
    with_prefix,
)
from ..helpers.digits import digits_config, write_digits
from ..helpers.errors import raises
from ..helpers.runs import assert_same, demo_model

LINEAR = 'linear_vit-b16_100e_in1k.py'
FINETUNE = 'finetune_vit-b16_100e_in1k.py'
HEAD = 'model.head.num_classes'
MIXUP = 'model.data_preprocessor.num_classes'
HEAD3 = dict(type='LinearClsHead', num_classes=3, in_channels=24)
HOOK = 'default_hooks.checkpoint_fit'
# What a run saves in addition to its weights and its optimiser.
RUN = dict(
    meta=dict(iter=1, epoch=0),
    message_hub=MessageHub('saved').state_dict(),
    param_schedulers=[],
)
# The end of the line that says what is loaded.
ALL = ' names of the model match'


@pytest.fixture
def load(tmp_path):
    """Return a function that loads content and returns the lines logged."""

    def write_and_load(model, content, scheme='', **run):
        torch.save(content, tmp_path / 'a.pth')
        lines = load_as_a_run(model, f'{scheme}{tmp_path}/a.pth', **run)
        return ' '.join(lines)

    return write_and_load


def copied(model):
    return {name: v.clone() for name, v in model.state_dict().items()}


def part_of(state):
    """Return weights from which a run may start, but not resume."""
    return {k: v for k, v in state.items() if k.startswith('backbone.')}


def test_fitting_checkpoints(load):
    model = demo_model()
    state = copied(model)
    state['backbone.cls_token'].fill_(3)
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    run = RUN | dict(optimizer=wrapper.state_dict())
    load(model, run | dict(state_dict=state), resume=True)
    assert (model.backbone.cls_token == 3).all()
    load(model, with_prefix('module.', state))
    load(model, part_of(state))


class Layer(nn.Linear):
    """A model of two layers with the methods that a runner requires."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.other = nn.Linear(*sizes)

    def forward(self, x):
        return super().forward(x) + self.other(x)

    def train_step(self, data, optim_wrapper):
        return {}


def stepped(kind=torch.optim.AdamW, **settings):
    """Return a model, its optimiser after a step, and what a run saves."""
    model = Layer(2, 3)
    wrapper = OptimWrapper(kind(model.parameters(), lr=0.125, **settings))
    wrapper.update_params(model(torch.ones(1, 2)).sum())
    optimizer = copy.deepcopy(wrapper.state_dict())
    run = dict(state_dict=copied(model), optimizer=optimizer)
    return model, wrapper, run | RUN


def test_what_goes_on_of_the_optimizer(load):
    """The run continues with the file's values, and the log names them."""
    model, wrapper, run = stepped()

    def resume(**parts):
        return load(model, run | parts, resume=True, wrapper=wrapper)

    optimizer = run['optimizer']
    group = optimizer['param_groups'][0]
    del group['foreach']  # an older version of PyTorch
    group |= dict(lr=0.5, initial_lr=0.125)
    assert resume().endswith(ALL)  # a schedule changed lr
    group['initial_lr'] = 0.25
    lines = resume()
    assert '0.25' in lines and '0.125' in lines
    group['initial_lr'] = 0.125
    assert '4 of 4' in resume(optimizer=optimizer | dict(state={0: {}}))


def test_other_optimizers_go_on(load):
    """Optimisers with no state, states of other shapes or counters resume."""
    for kind, settings in (
        (torch.optim.SGD, {}),
        (torch.optim.Adafactor, {}),
        (Lamb, {}),
        (torch.optim.Adam, dict(amsgrad=True)),
    ):
        model, wrapper, run = stepped(kind, **settings)
        fresh = OptimWrapper(kind(model.parameters(), lr=0.125, **settings))
        assert load(model, run, resume=True, wrapper=fresh).endswith(ALL)


@pytest.mark.parametrize(
    ('place', 'value'),
    [
        ('state.0.exp_avg', torch.zeros(3, 3)),
        ('state.0.exp_avg', torch.zeros(2, 3).T),
        ('state.0.exp_avg', torch.zeros(3, 2, dtype=torch.int64)),
        ('state.0.exp_avg_sq', torch.zeros(6).as_strided((3, 2), (1, 1))),
        ('state.1.exp_avg', torch.zeros(0)),
        ('state.1.step', torch.zeros(7)),
        ('state.1.step', 'one'),
        ('state.2', dict(step=torch.tensor(1.0))),
        ('state.5', {}),
        ('state.0', []),
        ('state', []),
        ('param_groups.0.fused', True),
        ('param_groups.0.maximize', True),
        ('param_groups.0.betas', (0.9,)),
        ('param_groups.0.lr', torch.ones(9)),
        ('param_groups.0.params', [0, 0]),
        ('param_groups', []),
        ('loss_scaler', dict(scale='inf')),
    ],
)
def test_optimizers_that_do_not_fit(load, place, value):
    """States and settings that do not fit the optimiser are refused."""
    model, wrapper, run = stepped()
    part = run['optimizer']
    *path, last = [int(k) if k.isdigit() else k for k in place.split('.')]
    for key in path:
        part = part[key]
    part[last] = value
    with pytest.raises(CheckpointError):
        load(model, run, resume=True, wrapper=wrapper)


def test_an_encoder_of_other_images(load):
    """The file's grid may differ, and may be oblong if the file records it."""
    content, teacher, _ = checkpoint('mmmoca', (32, 72))
    model = classifier(img_size=(48, 64))
    load(model, content, trains=False)
    expected = resize_pos_embed(teacher.pos_embed, (4, 9), (6, 8))
    assert torch.equal(model.backbone.pos_embed, expected)
    # As at the start of a pretraining, grey images get a summed kernel.
    model = classifier(img_size=(32, 72), in_channels=1)
    load(model, content, trains=False)
    projection = teacher.patch_embed.projection.weight.sum(1, keepdim=True)
    found = model.backbone.patch_embed.projection.weight
    assert torch.equal(found, projection)


def test_a_head_of_timm_is_no_head_of_ours(load):
    """timm's head is not loaded, although ours has the same name."""
    model = classifier(HEAD3)
    model.head.weight = torch.nn.Parameter(torch.zeros(2))
    model.init_weights()
    before = copied(model)
    state = timm_state(**{'head.weight': torch.ones(5, 24)})
    load(model, state)
    after = model.state_dict()
    changed = {
        n.split('.')[0] for n in before if (before[n] != after[n]).any()
    }
    assert changed == {'backbone'}


def test_layer_scale(load):
    """A model with LayerScale keeps it."""
    source = mm_vit(layer_scale_init_value=0.1)
    content = with_prefix('backbone.', source.state_dict())
    model = classifier(layer_scale_init_value=0.1)
    load(model, content, trains=False)
    assert_same(model.backbone.state_dict(), source.state_dict())


def test_a_head_is_tested_with_its_own_weights(load):
    model = classifier(HEAD3)
    state = copied(model)
    state['head.fc.bias'] = torch.tensor([1.0, 2.0, 3.0])
    load(model, dict(state_dict=state, meta={}), trains=False)
    assert model.head.fc.bias.tolist() == [1, 2, 3]


def folded():
    vit = mm_vit(layer_scale_init_value=0.1)
    return with_prefix('backbone.', vit.state_dict())


NO_NORM = {'norm.weight': None, 'norm.bias': None}
# No shape shows the number of heads, but the record in a file does.
HEADS = dict(meta=dict(mmmoca=dict(num_heads=2)))
RESUMED = dict(resume=True)


def cut(state):
    """Return codebook entries for fewer words and smaller images."""
    names = 'codebook.words', 'codebook.token_mean'
    return {name: state[name][1:] for name in names}


@pytest.mark.parametrize(
    ('key', 'options', 'change'),
    [
        ('codebook.msd', RESUMED, lambda s: RUN | dict(state_dict=part_of(s))),
        ('resume=False', RESUMED, lambda s: RUN | dict(state_dict=s)),
        ('resume=False', RESUMED, lambda s: dict(state_dict=s, meta={})),
        ('num_heads=2', {}, lambda s: HEADS | dict(state_dict=s)),
        ('img_size', {}, lambda s: dict(state_dict=s | cut(s))),
    ],
)
def test_refusals(load, key, options, change):
    model = demo_model(**{'model.codebook.centre': 0.9})
    with raises(CheckpointError, key):
        load(model, change(copied(model)), **options)


@pytest.mark.parametrize(
    ('key', 'head', 'content'),
    [
        ('gamma1.weight', None, folded),
        ('head', HEAD3, lambda: checkpoint('mmmoca')[0]),
        ('ln1.bias', None, lambda: timm_state(**NO_NORM)),
    ],
)
def test_what_is_not_tested(load, key, head, content):
    """A test refuses files that lack trained parts or would lose some."""
    with raises(CheckpointError, key):
        load(classifier(head), content(), trains=False)


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp('source') / 'digits', 100)


@pytest.mark.parametrize(
    ('name', 'stage', 'options', 'key'),
    [
        (LINEAR, 'train', {}, 'load_from='),
        (LINEAR, 'test', {HEAD: 9}, f'{HEAD}=10'),
        (FINETUNE, 'train', {MIXUP: 9}, f'{MIXUP}=10'),
    ],
)
def test_runs_that_are_refused(digits, tmp_path, name, stage, options, key):
    runner = Runner.from_cfg(digits_config(name, digits, tmp_path, **options))
    with raises(ValueError, key):
        getattr(runner, stage)()
    assert not list(tmp_path.glob('*.pth'))


@pytest.mark.parametrize('door', ['load_from', 'init', 'start'])
def test_images_and_features_of_a_run_were_others(tmp_path, door):
    images = dict(mean=(127.5,) * 3, std=(63.75,) * 3, channel_order='rgb')
    content = checkpoint('mmmoca')[0]
    content['meta']['mmmoca'] = dict(preprocessing=images, feature='cls')
    torch.save(content, tmp_path / 'a.pth')
    address, model = f'mmmoca-teacher://{tmp_path}/a.pth', classifier()
    if door == 'start':
        address = f'mmmoca-start://{tmp_path}/a.pth'
        vit = mm_config(type='mmmoca.MOCAViT', tap_layer=1)
        model = build_moca(backbone=vit, codebook__border=0)
    elif door == 'init':
        init = dict(type='Pretrained', prefix='backbone.', checkpoint=address)
        model, address = classifier(init_cfg=init), None
    numbers = dict(mean=[123.0] * 3, std=[58.0] * 3, to_rgb=True)
    pooled = dict(type='GlobalAveragePooling')
    parts = dict(backbone=dict(out_type='featmap'), neck=pooled)
    cfg = dict(model=dict(data_preprocessor=numbers, **parts))
    lines = load_as_a_run(model, address, cfg=cfg, level=logging.WARNING)
    (line,) = [line for line in lines if '127.5' in line]
    assert 'a.pth' in line
    assert sum('[CLS]' in line for line in lines) == 1


def test_classes_differ(digits, tmp_path):
    root = shutil.copytree(digits, tmp_path / 'digits')
    shutil.move(root / 'val' / '3', root / 'val' / 'three')
    with raises(ValueError, '3', 'three'):
        Runner.from_cfg(digits_config(LINEAR, root, tmp_path)).train()
    for place in root.glob('*/[1-9t]*'):
        shutil.rmtree(place)
    one = {HEAD: 1, MIXUP: 1, f'{HOOK}.needs_checkpoint': False}
    one['train_dataloader.batch_size'] = 2
    with raises(ValueError, 'data_root'):
        Runner.from_cfg(digits_config(FINETUNE, root, tmp_path, **one)).train()
