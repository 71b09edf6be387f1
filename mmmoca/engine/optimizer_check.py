# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compares the optimiser in a checkpoint with that of a resumed run."""

import itertools
from numbers import Real

from mmengine.optim import OptimWrapper
from torch import Tensor

from mmmoca.checkpoints import CheckpointError

from .resume_check import ADVICE

# States that have the shape of the parameter in every optimiser.
_MOMENTS = 'exp_avg', 'exp_avg_sq', 'momentum_buffer'


def check_optimizer(saved: dict, wrapper: OptimWrapper) -> list[str]:
    """Compare the optimiser in a checkpoint with that of the run.

    PyTorch does not check a loaded state. Its fused kernels assume dense
    tensors of the parameter's shape, and loading also restores the flags that
    select these kernels.

    Args:
        saved (dict): The state of the optimiser wrapper in the checkpoint.
            Flags that it lacks are added in place: older versions of PyTorch
            have fewer flags.
        wrapper (OptimWrapper): The optimiser wrapper of the run.

    Returns:
        list[str]: Warnings about numbers in the config that the checkpoint
        overrides, and about parameters for which the checkpoint has no state.

    Raises:
        CheckpointError: If the checkpoint is from another optimiser or has
            other parameters, or if a state does not fit its parameter.
    """
    try:
        return _check_groups(saved, wrapper.optimizer.param_groups)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise CheckpointError(
            f'the optimiser in the checkpoint is broken: {ADVICE}'
        ) from error


def _check_groups(saved: dict, owns: list[dict]) -> list[str]:
    count = itertools.count()
    numbers = [[next(count) for _ in own['params']] for own in owns]
    groups, states = saved['param_groups'], saved['state']
    known = {*itertools.chain(*numbers)}
    scaler = saved.get('loss_scaler', {}).values()
    if (
        [group['params'] for group in groups] != numbers
        or states.keys() - known
        or not all(isinstance(value, Real) for value in scaler)
    ):
        raise CheckpointError(
            f'the optimiser in the checkpoint has other parameters: {ADVICE}'
        )
    changed, without, names = {}, 0, {}
    for group, own in zip(groups, owns):
        changed |= _changed_numbers(group, own)
        for number, parameter in zip(group['params'], own['params']):
            state = states.get(number, {})
            without += parameter.requires_grad and not state
            # Adafactor has other states for vectors than for matrices.
            usual = names.setdefault(parameter.ndim, state) if state else {}
            if state.keys() != usual.keys():
                raise CheckpointError(
                    'states of the optimiser in the checkpoint are missing: '
                    f'{ADVICE}'
                )
            for name, value in state.items():
                exact = 'fused' in own or name in _MOMENTS
                if exact and not _fits(name, value, parameter):
                    raise CheckpointError(
                        f'{name} of the optimiser is not a dense tensor with '
                        f'the shape of its parameter: {ADVICE}'
                    )
    warnings = [
        f'{key} is {before}, as in the checkpoint, not {now}; for {now}, '
        f'{ADVICE}'
        for key, (before, now) in changed.items()
    ]
    # SGD without momentum has no states.
    if without and any(own.get('momentum') != 0 for own in owns):
        warnings.append(
            f'the checkpoint has no optimiser state for {without} of '
            f'{len(known)} parameters, so their state starts from zero'
        )
    return warnings


def _changed_numbers(group: dict, own: dict) -> dict[str, list[Real]]:
    """Return the numbers that differ; refuse other settings that differ."""
    changed = {}
    for key in (group | own).keys() - {'params', 'param_names'}:
        if key in own and isinstance(own[key], bool | None):
            # Versions of PyTorch differ in their flags.
            group.setdefault(key, own[key])
        elif key not in own and isinstance(group[key], Real | None):
            continue  # some optimisers count steps in a group
        held = [s.get(key) for s in (group, own)]
        # Schedules change the current numbers, so compare the initial numbers.
        pair = [s.get(f'initial_{key}', s.get(key)) for s in (group, own)]
        if key == 'betas' and 'initial_momentum' in own:
            held = pair = [s.get(key, ())[1:] for s in (group, own)]
        numbers = {*map(type, held + pair)} <= {int, float}
        alike = repr(pair[0]) == repr(pair[1]) and (
            numbers or repr(held[0]) == repr(held[1])
        )
        if alike or key.startswith('initial_'):
            continue
        if key == 'constant':
            raise CheckpointError(
                'the run to resume had another optim_wrapper.paramwise_cfg, '
                'which froze or decayed other parameters: use that one, or '
                f'{ADVICE}'
            )
        if not numbers:
            raise CheckpointError(
                f'the optimiser in the checkpoint has {key}={pair[0]!r}, but '
                f"the config has {pair[1]!r}: write the checkpoint's value, "
                f'or {ADVICE}'
            )
        changed[key] = pair
    return changed


def _fits(name: str, value: object, parameter: Tensor) -> bool:
    """Return whether a value can be a state of a parameter."""
    if name == 'step':
        return isinstance(value, Real) or getattr(value, 'ndim', None) == 0
    if not isinstance(value, Tensor):
        return value is None and name == 'momentum_buffer'
    dense = value.is_contiguous() or value.stride() == parameter.stride()
    alike = dense and value.shape == parameter.shape
    return alike and value.is_floating_point()
