# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, Runner
from torch.utils.data import DataLoader

from mmmoca.engine.steps import global_batch_size, is_infinite
from mmmoca.registry import HOOKS

__all__ = ['BatchSizeHook', 'peak_rates']


@HOOKS.register_module()
class BatchSizeHook(Hook):
    """Lets learning rates follow the images of an optimiser step.

    MMEngine's ``auto_scale_lr`` counts the images of a micro-batch on all
    processes and scales every parameter group. Where it is enabled, this hook
    completes it: a rate is multiplied by processes x batch size x accumulated
    micro-batches over ``base_batch_size``, and groups whose ``constant`` key
    names ``lr``, such as the prototype generators, keep theirs.

    Before training the log says how many images a step has and the rates,
    with a warning if those were chosen for another number of images.

    Raises:
        ValueError: Before training, if an epoch has no step because the
            images do not fill a batch.
    """

    # Its error comes before those of reading checkpoints, and after those of
    # the ClassifierCheckHook, which tell more of the images.
    priority = 'HIGH'

    def before_run(self, runner: Runner) -> None:
        """Check the data, complete the scaling, say what came out."""
        if not isinstance(runner._train_loop, BaseLoop):
            return  # a test or a validation alone
        _check_steps(runner.train_dataloader)
        images = global_batch_size(runner)
        if images is None:
            return
        scaling = _scaling(runner)
        base = scaling.get('base_batch_size', images)
        if scaling.get('enable', False):
            _complete_scaling(runner, images, base)
        micro_batches = runner.optim_wrapper._accumulative_counts
        runner.logger.info(
            f'{images} images an optimiser step ({get_world_size()} processes '
            f'x {images // (get_world_size() * micro_batches)} images x '
            f'{micro_batches} micro-batches); peak learning rates: '
            + peak_rates(runner)
        )
        if images != base and not scaling.get('enable', False):
            runner.logger.warning(
                f'the learning rates were chosen for {base} images an '
                f'optimiser step, and there are {images}: add --auto-scale-lr '
                '(auto_scale_lr.enable=True) to scale them'
            )


def _scaling(runner: Runner) -> dict:
    # FlexibleRunner has it under another name.
    name = 'auto_scale_lr'
    return getattr(runner, name, getattr(runner, f'_{name}', None)) or {}


def _check_steps(loader: DataLoader) -> None:
    if len(loader) or is_infinite(loader.sampler):
        return
    share = len(loader.sampler)
    raise ValueError(
        f'an epoch has no step: each of {get_world_size()} processes has '
        f'{share} of the {len(loader.dataset)} training images, which do not '
        f'fill a batch of {loader.batch_size}, and drop_last leaves the rest '
        f'out. Set train_dataloader.batch_size={share} or lower, and add '
        '--auto-scale-lr'
    )


def _complete_scaling(runner: Runner, images: int, base: int) -> None:
    """Correct what MMEngine's scaling has done to the groups."""
    wrapper = runner.optim_wrapper
    micro_batches = wrapper._accumulative_counts
    factors = []
    for group in wrapper.param_groups:
        if group is getattr(wrapper, 'base_param_settings', None):
            factor = images / base  # not scaled: it is there for the log
        elif 'lr' in group.get('constant', ()):
            factor = base * micro_batches / images
        else:
            factor = micro_batches
        factors.append(factor)
    for group, factor in zip(wrapper.param_groups, factors):
        for name in ('lr', 'initial_lr'):
            if name in group:
                group[name] *= factor
    # They have been built, but no step has been taken.
    for scheduler in runner.param_schedulers or ():
        if scheduler.param_name == 'lr':
            scheduler.base_values = [
                value * factor
                for value, factor in zip(scheduler.base_values, factors)
            ]


def peak_rates(runner: Runner) -> str:
    """The distinct learning rates of the groups, at their peak.

    Args:
        runner (Runner): The runner, with its optimiser.

    Returns:
        str: For a log; the first and the last where there are many.
    """
    rates = {
        group.get('initial_lr', group['lr'])
        for group in runner.optim_wrapper.optimizer.param_groups
    }
    shown = sorted(rates, reverse=True)
    if len(shown) > 3:  # as with layer-wise decay
        return f'{shown[0]:g} to {shown[-1]:g}'
    return ', '.join(f'{rate:g}' for rate in shown)
