# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from unittest import mock

import pytest
import torch
from mmengine.hooks import Hook

from mmmoca.engine import NonFiniteLossError, StepLogHook, TeacherEMAHook
from mmmoca.engine.hooks.teacher_ema_hook import cosine_momentum

from ..helpers.judges import rank_judge
from ..helpers.runs import NO_VALIDATION, demo_runner, scalars


def build(root, name):
    options = {
        'train_cfg.max_iters': 7,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.logger.interval': 3,
    }
    return demo_runner(root, name, **options | NO_VALIDATION)


class OwnHook(Hook):
    """A user's hook, which does not know StepLogHook."""

    def __init__(self):
        self.seen = []

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        names = 'loss', 'loss_img', 'msd', 'grad_norm'
        self.seen.append([float(outputs[name]) for name in names])


@pytest.fixture(scope='module')
def trained(root):
    """Return a run, each step's effective rank, and what another hook saw."""
    runner, own, ranks = build(root, 'with'), OwnHook(), []
    encode = runner.model.encode_teacher

    def note(views):
        tokens = encode(views)
        ranks.append(rank_judge(tokens.mean(1).numpy()))
        return tokens

    runner.model.encode_teacher = note
    runner.register_hook(own)
    runner.train()
    return runner, ranks, own.seen


@pytest.mark.slow
def test_effective_rank_at_each_log_line(trained):
    runner, ranks, _ = trained
    assert len(ranks) == 7
    found = scalars(runner, 'train/rank_me')
    expected = [ranks[2], ranks[5], ranks[6]]  # and at the end
    assert found.tolist() == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_other_hooks_find_the_scalars_of_the_step(trained):
    runner, _, seen = trained
    names = 'loss', 'loss_img', 'msd', 'grad_norm'
    logged = [scalars(runner, f'train/{name}').tolist() for name in names]
    assert [*zip(*seen)] == [pytest.approx(line) for line in logged]


def step_log_of(runner):
    return next(h for h in runner.hooks if isinstance(h, StepLogHook))


@pytest.mark.slow
def test_same_numbers_as_without(trained, root):
    with_hook, _, _ = trained
    without = build(root, 'without')
    without._hooks.remove(step_log_of(without))
    without.train()
    names = 'loss', 'loss_img', 'loss_loc', 'codebook_perplexity', 'msd'
    for name in (*names, 'image_information'):
        ours, expected = (
            scalars(runner, f'train/{name}') for runner in (with_hook, without)
        )
        assert len(ours) == 7 and ours.tolist() == expected.tolist(), name
    assert 'train/grad_norm' in with_hook.message_hub.log_scalars
    # These are the demo's values, from the first step to the last.
    momenta = [cosine_momentum(0.9, step, 7, 0.99) for step in range(1, 8)]
    assert scalars(with_hook, 'train/momentum') == pytest.approx(momenta)


@pytest.mark.slow
def test_another_schedule_of_the_teacher(root):
    runner = build(root, 'momentum')
    hook = next(h for h in runner.hooks if isinstance(h, TeacherEMAHook))
    hook.momentum_at = lambda step, total_steps: step / total_steps
    runner.train()
    momenta = scalars(runner, 'train/momentum').tolist()
    assert momenta == pytest.approx([step / 7 for step in range(1, 8)])
    for wrong in (1.1, None):
        hook.momentum_at = lambda *_, wrong=wrong: wrong
        with pytest.raises(ValueError, match='momentum_at'):
            hook.after_train_iter(runner)


@pytest.mark.slow
def test_a_collapse_is_said_once(root):
    runner = build(root, 'collapse')
    parse_losses = runner.model.parse_losses
    information = torch.tensor([0.5, 0.9, 0.31, 0.29, 0.2, 1.0, 0.1])
    msd = torch.tensor([0.5, 0.9, 0.3, 0.3, 0.05, 1.0, 0.01])

    def fall(losses):
        # The codebook's hook logs msd.
        runner.model.codebook.msd.copy_(msd[runner.iter])
        now = information[runner.iter]
        return parse_losses(losses | dict(image_information=now))

    runner.model.parse_losses = fall
    with mock.patch.object(runner.logger, 'warning') as warning:
        runner.train()
    texts = [call.args[0] for call in warning.call_args_list]
    first, second = (text for text in texts if 'collapse' in text)
    assert 'iteration 4: ' in first and 'image_information' in first
    assert 'iteration 5: ' in second and 'msd' in second
    # A resumed run knows the highest value from the message hub.
    resumed = StepLogHook()
    resumed.before_train(runner)
    assert resumed._highest_information == 1


@pytest.mark.slow
def test_a_codebook_that_is_not_updated_is_said_once(root):
    runner = build(root, 'nan')
    codebook = runner.model.codebook
    codebook.word_sampler.describe = lambda tokens, _: tokens[:, :, 0] / 0
    with mock.patch.object(runner.logger, 'warning') as warning:
        runner.train()
    texts = [call.args[0] for call in warning.call_args_list]
    (text,) = (text for text in texts if text.startswith('iteration'))
    assert text.startswith('iteration 1: ') and codebook.pointer == 0
    assert 'train/codebook_kept' not in runner.message_hub.log_scalars


@pytest.mark.slow
def test_non_finite_step_stops_the_run(root):
    runner = build(root, 'poisoned')

    def poison(self, runner, batch_idx, data_batch=None):
        if runner.iter == 4:
            with torch.no_grad():
                runner.model.neck.mask_token.fill_(float('nan'))
            # MMEngine records a checkpoint before it writes it.
            runner.message_hub.update_info('last_ckpt', 'never_written.pth')

    hook = step_log_of(runner)
    hook.before_train_iter = poison.__get__(hook)
    with pytest.raises(NonFiniteLossError) as error:
        runner.train()
    message = str(error.value)
    assert 'iteration 5: ' in message and 'loss_loc=nan' in message
    assert 'poisoned/iter_4.pth' in message
    assert message.count('.jpg') == 8
    assert not (root / 'poisoned' / 'iter_6.pth').exists()
