# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run takes of a checkpoint, and what does not fit and is refused.

Which files there are is a matter of test_layouts, starts of pretraining one
of test_starts; classes are in the file beside this one.
"""

import copy

import pytest
import torch
from mmengine.optim import OptimWrapper
from torch import nn

from mmmoca.checkpoints import CheckpointError, resize_positions
from mmmoca.checkpoints.keys import TIMM

from ..runs import assert_same, demo_model
from ..test_checkpoints.files import (
    checkpoint,
    classifier,
    load_as_a_run,
    mm_vit,
    timm_state,
    with_prefix,
)


@pytest.fixture
def load(tmp_path):
    """Load what a file holds into a model; the lines of the log."""

    def write_and_load(model, content, scheme='', **run):
        torch.save(content, tmp_path / 'a.pth')
        lines = load_as_a_run(model, f'{scheme}{tmp_path}/a.pth', **run)
        return ' '.join(lines)

    return write_and_load


def copied(model):
    return {name: v.clone() for name, v in model.state_dict().items()}


def test_fitting_checkpoints(load):
    model = demo_model()
    state = copied(model)
    state['backbone.cls_token'].fill_(3)
    run = dict(optimizer=dict(param_groups=[]), meta=dict(iter=1))
    load(model, run | dict(state_dict=state), resume=True)
    assert (model.backbone.cls_token == 3).all()
    load(model, with_prefix('module.', state))
    # To start from a part is fine, to resume from it is not.
    part = {k: v for k, v in state.items() if k.startswith('backbone.')}
    load(model, part)
    with pytest.raises(CheckpointError, match=r'missing \(codebook.msd'):
        load(model, run | dict(state_dict=part), resume=True)


def test_what_goes_on_of_the_optimizer(load):
    """The rates of the file, of which is said that they are others."""
    model = nn.Linear(2, 3)
    wrapper = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=0.125))
    wrapper.update_params(model(torch.ones(1, 2)).sum())
    run = dict(state_dict=copied(model), meta=dict(iter=1))

    def resume(**parts):
        return load(model, run | parts, resume=True, wrapper=wrapper)

    optimizer = copy.deepcopy(wrapper.state_dict())
    optimizer['param_groups'][0] |= dict(lr=0.5, initial_lr=0.125)
    assert resume(optimizer=optimizer) == ''  # a schedule has moved it
    optimizer['param_groups'][0]['initial_lr'] = 0.25
    said = resume(optimizer=optimizer)
    assert '0.25' in said and '0.125' in said
    for parts in ({}, dict(optimizer=optimizer, meta={})):
        with pytest.raises(CheckpointError, match='no run'):
            resume(**parts)
    optimizer['state'][0]['exp_avg'] = torch.zeros(3, 3)
    with pytest.raises(CheckpointError, match='exp_avg'):
        resume(optimizer=optimizer)


def test_checkpoints_that_do_not_fit(load):
    """Those of other shapes are in test_pretrained."""
    model = demo_model()
    with pytest.raises(CheckpointError, match='0 of .* 1 unexpected'):
        load(model, {'encoder.weight': torch.zeros(2)})
    # Which no shape tells; the record in the file does.
    record = dict(mmmoca=dict(num_heads=2))
    with pytest.raises(CheckpointError, match='num_heads=2'):
        load(model, dict(state_dict=model.state_dict(), meta=record))


def test_a_student_does_not_pass_for_the_teacher(load):
    model = demo_model()
    state = copied(model)
    state['teacher.cls_token'].fill_(7)
    del model.teacher
    load(model, state)
    assert (model.backbone.cls_token == 7).all()


def assert_holds(model, vit):
    """The backbone has the weights of a ViT of either library."""
    expected = {TIMM.to_mmpretrain(k): v for k, v in vit.state_dict().items()}
    assert_same(model.backbone.state_dict(), expected)


def test_an_encoder_is_evaluated(load):
    """The teacher, or the student on request; on another grid, too."""
    content, teacher, student = checkpoint('mmmoca', (32, 72))
    model = classifier(img_size=(32, 72))
    load(model, content, trains=False)
    assert_holds(model, teacher)
    load(model, content, 'mmmoca-student://', trains=False)
    assert_holds(model, student)
    # A grid that is on record need not be square.
    model = classifier(img_size=(48, 64))
    load(model, content, trains=False)
    expected = resize_positions(teacher.pos_embed, (4, 9), (6, 8))
    assert torch.equal(model.backbone.pos_embed, expected)


def test_layer_scale(load):
    """It is folded into a model that has none, but for the very model."""
    source = mm_vit(layer_scale_init_value=0.1)
    content = with_prefix('backbone.', source.state_dict())
    with pytest.raises(CheckpointError, match='have no .*gamma1.weight'):
        load(classifier(), content, trains=False)
    load(classifier(), content, 'mmmoca-teacher://', trains=False)
    model = classifier(layer_scale_init_value=0.1)
    load(model, content, trains=False)
    assert_holds(model, source)


def test_a_head_is_tested_with_its_own_weights(load):
    head = dict(type='LinearClsHead', num_classes=3, in_channels=24)
    model = classifier(head)
    state = copied(model)
    state['head.fc.bias'] = torch.tensor([1.0, 2.0, 3.0])
    load(model, dict(state_dict=state, meta={}), trains=False)
    assert model.head.fc.bias.tolist() == [1, 2, 3]
    with pytest.raises(CheckpointError, match='missing .head'):
        load(model, checkpoint('mmmoca')[0], trains=False)


def test_an_untrained_final_norm_is_not_evaluated(load):
    state = timm_state(**{'norm.weight': None, 'norm.bias': None})
    with pytest.raises(CheckpointError, match='no ln1.bias, ln1.weight'):
        load(classifier(), state, trains=False)
