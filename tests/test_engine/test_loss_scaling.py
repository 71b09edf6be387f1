# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""float16 with a loss scaler: what a skipped step changes."""

import functools
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.registry import OPTIM_WRAPPERS

from mmmoca.engine import MixedPrecisionOptimWrapper, NonFiniteLossError
from mmmoca.engine.hooks.step_log_hook import StepLogHook
from mmmoca.engine.steps import skipped, unwrap_model

from ..helpers.builders import ARCH
from ..helpers.distributed import run_processes
from ..helpers.runs import (
    NO_VALIDATION,
    assert_same,
    demo_runner,
    scalars,
    state_of,
)

pytestmark = pytest.mark.gpu
STEPS, POISONED = 4, 2
MOVED = 'words', 'pointer', 'msd', 'token_mean'


@OPTIM_WRAPPERS.register_module()
class Float16OnCPU(MixedPrecisionOptimWrapper):
    """A float16 wrapper with a scaler, which MMEngine offers only on GPUs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.loss_scaler = torch.amp.GradScaler('cpu', **kwargs['loss_scale'])

    @contextmanager
    def optim_context(self, model):
        half = torch.autocast('cpu', torch.float16)
        with super().optim_context(model), half:
            yield


WRAPPER = (
    'mmmoca.MixedPrecisionOptimWrapper'
    if torch.cuda.is_available()
    else 'Float16OnCPU'
)


HALF = {
    **NO_VALIDATION,
    'env_cfg.dist_cfg.backend': 'gloo',
    'train_cfg.max_iters': STEPS,
    'model.codebook.centre': 0.9,
    'default_hooks.checkpoint.interval': 100,
    'default_hooks.checkpoint.save_last': False,
    'optim_wrapper.type': WRAPPER,
    'optim_wrapper.dtype': 'float16',
    # A scale that suits the demo's model from the first step on.
    'optim_wrapper.loss_scale': dict(init_scale=32.0),
}


# A CPU is slow in float16.
SMALL = {
    'model.backbone.arch': dict(ARCH, num_layers=1),
    'model.backbone.tap_layer': 1,
    'model.neck.embed_dims': 16,
    'model.codebook.num_words': 64,
}


class Recorder(Hook):
    """Damages some iterations and records the state after each."""

    priority = 'VERY_LOW'

    def __init__(self, poison, iterations):
        self.poison, self.iterations = poison, iterations
        self.states, self.scales = [], []

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        self.handle = None
        if runner.iter in self.iterations:
            self.handle = self.poison(unwrap_model(runner.model))

    def after_train_iter(self, runner, *args, **kwargs):
        if self.handle is not None:
            self.handle.remove()
        state = state_of(runner)
        self.states.append({name: v.clone() for name, v in state.items()})
        self.scales.append(runner.optim_wrapper.loss_scaler.get_scale())


def gradient_overflows(model):
    """Set an infinite gradient on the last rank alone."""
    scale = float('inf') if get_rank() == get_world_size() - 1 else 1.0

    def poison(module, inputs, output):
        output.register_hook(lambda grad: grad * scale)

    return model.backbone.ln1.register_forward_hook(poison)


def token_overflows(model):
    """Make a teacher token infinite, for one image of the last rank alone."""

    def poison(module, inputs, output):
        if get_rank() == get_world_size() - 1:
            output = output.clone()
            output[0, 8] = float('inf')
        return output

    return model.teacher.ln1.register_forward_hook(poison)


def run(root, name, poison, iterations=(POISONED,), **options):
    """Train; return each step's state and scale, the skips, and the error."""
    runner = demo_runner(root, name, **HALF | SMALL | options)
    recorder = Recorder(poison, iterations)
    runner.register_hook(recorder)
    skips = error = None
    try:
        runner.train()
        skips = scalars(runner, 'train/skipped').tolist()
    except NonFiniteLossError as caught:
        error = str(caught)
    return recorder.states, recorder.scales, skips, error


def differing(first, second):
    return {name for name in first if (first[name] != second[name]).any()}


@pytest.mark.slow
@pytest.mark.processes
def test_skipped_step_changes_nothing(root):
    results = run_processes(run, 2, root, 'overflow', gradient_overflows)
    for states, scales, skips, error in results:
        assert error is None
        assert_same(states[POISONED - 1], states[POISONED])
        assert scales[POISONED] == scales[POISONED - 1] / 2
        assert skips == [step == POISONED for step in range(STEPS)]
        for step in set(range(1, STEPS)) - {POISONED}:
            moved = differing(states[step - 1], states[step])
            assert moved >= {f'codebook.{name}' for name in MOVED}, step
            assert moved >= {'backbone.ln1.weight', 'teacher.ln1.weight'}
        for after in states:
            assert all(value.isfinite().all() for value in after.values())
    for states in zip(results[0][0], results[1][0]):
        assert_same(*states)


@pytest.mark.processes
def test_no_word_is_taken_that_is_not_finite(root):
    """Without a scaler, no flag marks a step with non-finite values."""
    options = {
        'optim_wrapper.type': 'mmmoca.MixedPrecisionOptimWrapper',
        'optim_wrapper.dtype': 'bfloat16',
    }
    train = functools.partial(run, root, 'word', token_overflows, **options)
    for states, *_, error in run_processes(train, 2):
        for after in states:
            for name in MOVED:
                assert after[f'codebook.{name}'].isfinite().all()
        moved = differing(states[POISONED - 1], states[POISONED])
        assert not any(name.startswith('codebook') for name in moved)
        assert f'iteration {POISONED + 1}: ' in error


@pytest.mark.slow
def test_endless_skipping_stops_the_run(root, monkeypatch):
    monkeypatch.setattr(StepLogHook, 'max_skipped_steps', 2)
    *_, error = run(root, 'endless', gradient_overflows, (0, 2, 3))
    assert 'iteration 4: ' in error and 'skipped=1' in error


def test_wrapper_that_hides_its_skipped_steps():
    """MMEngine's wrapper hides skipped steps, but skips none in bfloat16."""
    wrapper = SimpleNamespace(
        loss_scaler=torch.amp.GradScaler('cpu', enabled=False)
    )
    runner = SimpleNamespace(optim_wrapper=wrapper)
    assert skipped(runner) is None
    wrapper.loss_scaler = torch.amp.GradScaler('cpu')
    with pytest.raises(TypeError, match='MixedPrecisionOptimWrapper'):
        skipped(runner)
