# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints that do not fit a model are refused while they are loaded.

What it makes of other layouts and other classes is in files beside this one.
"""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from mmmoca.checkpoints import CheckpointError
from mmmoca.engine.hooks import checkpoint_fit_hook

from ..runs import demo_runner


@pytest.fixture(scope='module')
def runner(root):
    return demo_runner(root, 'fit')


@pytest.fixture
def load(runner, tmp_path):
    def load_state(state, resume=False, **meta):
        path = tmp_path / 'checkpoint.pth'
        optimizer = dict(param_groups=[])
        torch.save(
            dict(state_dict=state, meta=meta, optimizer=optimizer), path
        )
        runner._resume = resume
        runner.load_checkpoint(str(path))

    return load_state


def test_fitting_checkpoints(runner, load):
    state = {k: v.clone() for k, v in runner.model.state_dict().items()}
    state['backbone.cls_token'].fill_(3)
    load(state, resume=True, iter=1)
    assert (runner.model.backbone.cls_token == 3).all()
    load({f'module.{name}': value for name, value in state.items()})
    # To start from a part is fine, to resume from it is not.
    part = {k: v for k, v in state.items() if k.startswith('backbone.')}
    load(part)
    with pytest.raises(CheckpointError, match=r'missing \(codebook.msd'):
        load(part, resume=True, iter=1)
    # Only a run is resumed.
    with pytest.raises(CheckpointError, match='no run'):
        load(state, resume=True)


def optimizer_state(runner, **changes):
    """Of AdamW after a step, with other settings of its first group."""
    wrapper = runner.build_optim_wrapper(runner.cfg.optim_wrapper)
    for group in wrapper.param_groups:
        for parameter in group['params']:
            parameter.grad = torch.zeros_like(parameter)
    wrapper.optimizer.step()
    state = wrapper.state_dict()
    state['param_groups'][0] |= changes
    return state


def test_what_goes_on_of_the_optimizer(root, tmp_path):
    runner = demo_runner(root, 'optimizer', **{'train_cfg.max_iters': 1})
    own = runner.cfg.optim_wrapper.optimizer.lr
    fitting = dict(state_dict=runner.model.state_dict(), meta=dict(iter=1))
    changed = optimizer_state(runner, lr=0.123, initial_lr=0.123)
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    said, runner._resume = [], True
    runner.logger.warning = said.append

    def load(**parts):
        said.clear()
        torch.save(fitting | parts, tmp_path / 'a.pth')
        runner.load_checkpoint(str(tmp_path / 'a.pth'))
        return ' '.join(said)

    schedules = dict(param_schedulers=[dict(last_step=1)])
    assert load(optimizer=optimizer_state(runner), **schedules) == ''
    both = load(optimizer=changed, **schedules)
    assert '0.123' in both and f'{own:g}' in both
    with pytest.raises(CheckpointError, match='no run'):
        load(**schedules)
    changed['state'][0]['exp_avg'] = torch.zeros(3, 3)
    with pytest.raises(CheckpointError, match='exp_avg'):
        load(optimizer=changed, **schedules)


def with_channels(state):
    for encoder in ('backbone', 'teacher'):
        name = f'{encoder}.patch_embed.projection.weight'
        state[name] = state[name][:, :1].repeat(1, 13, 1, 1)
    return state


@pytest.mark.parametrize(
    ('change', 'heads', 'message'),
    [
        (lambda _: {'encoder.weight': torch.zeros(2)}, 4, '0 of its .* 1 un'),
        (
            lambda state: state | {'codebook.words': torch.zeros(8, 128)},
            *(4, r'1 of another shape \(codebook.words\)'),
        ),
        (with_channels, 4, 'in_channels'),
        # Which no shape tells; the record in the file does.
        (dict, 2, 'num_heads=2'),
    ],
)
def test_checkpoints_that_do_not_fit(runner, load, change, heads, message):
    state = change(runner.model.state_dict())
    with pytest.raises(CheckpointError, match=message):
        load(state, mmmoca=dict(num_heads=heads))


def test_starts_are_fitted(runner, tmp_path, monkeypatch):
    """Weights of timm, with LayerScale and another number of channels."""
    torch.manual_seed(0)
    theirs = VisionTransformer(
        img_size=48,
        patch_size=8,
        in_chans=1,
        embed_dim=128,
        depth=4,
        num_heads=4,
        init_values=0.5,
    )
    torch.save(theirs.state_dict(), tmp_path / 'theirs.pth')
    said = []
    for level in ('info', 'warning'):
        monkeypatch.setattr(runner.logger, level, said.append)
    runner._resume = False
    runner.load_checkpoint(f'mmmoca-start://{tmp_path}/theirs.pth')
    said = [line for line in said if line.startswith('theirs.pth')]
    assert said[0].startswith('theirs.pth (layout timm) fills backbone 54/54')
    assert said[0].endswith('teacher 54/54') and len(said) == 3
    grey = torch.randn(2, 1, 48, 48)
    theirs.eval()
    with torch.no_grad():
        expected = theirs.forward_features(grey)[:, 1:].mean(dim=1)
        for which in ('teacher', 'student'):
            actual = runner.model.eval().extract_feat(
                grey.expand(-1, 3, -1, -1), which
            )
            torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('is_vit', [True, False])
def test_a_student_does_not_pass_for_the_teacher(
    runner, load, monkeypatch, is_vit
):
    state = {k: v.clone() for k, v in runner.model.state_dict().items()}
    state['teacher.cls_token'].fill_(7)
    monkeypatch.delitem(runner.model._modules, 'teacher')
    if not is_vit:  # of another package, with the same names
        monkeypatch.setattr(checkpoint_fit_hook, 'VisionTransformer', str)
    load(state)
    assert (runner.model.backbone.cls_token == 7).all()
