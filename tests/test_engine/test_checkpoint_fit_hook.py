# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from ..images import DEMO_CONFIG


@pytest.fixture(scope='module')
def runner(tmp_path_factory):
    cfg = Config.fromfile(DEMO_CONFIG)
    cfg.work_dir = str(tmp_path_factory.mktemp('fit'))
    cfg.log_level = 'ERROR'
    return Runner.from_cfg(cfg)


@pytest.fixture
def load(runner, tmp_path):
    def load_state(state, resume=False):
        path = tmp_path / 'checkpoint.pth'
        torch.save(dict(state_dict=state, meta={}), path)
        runner._resume = resume
        runner.load_checkpoint(str(path))

    return load_state


def test_fitting_checkpoints(runner, load):
    state = {k: v.clone() for k, v in runner.model.state_dict().items()}
    state['backbone.cls_token'].fill_(3)
    load(state, resume=True)
    assert (runner.model.backbone.cls_token == 3).all()
    load({f'module.{name}': value for name, value in state.items()})
    # To start from a part is fine, to resume from it is not.
    part = {k: v for k, v in state.items() if k.startswith('backbone.')}
    load(part)
    with pytest.raises(ValueError, match=r'missing \(codebook.msd'):
        load(part, resume=True)


def test_checkpoints_that_do_not_fit(runner, load):
    state = runner.model.state_dict()
    with pytest.raises(ValueError, match='0 of the .* 1 unexpected'):
        load({'encoder.weight': torch.zeros(2)})
    other = dict(state)
    other['codebook.words'] = torch.zeros(8, 128)
    message = r'1 of another shape \(codebook.words\)'
    with pytest.raises(ValueError, match=message):
        load(other)
