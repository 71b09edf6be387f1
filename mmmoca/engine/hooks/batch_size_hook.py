# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.steps import global_batch_size, is_infinite, is_training
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

    # Its error comes before those of reading checkpoints.
    priority = 'HIGH'

    def before_run(self, runner: Runner) -> None:
        """Check the data, complete the scaling, say what came out."""
        if not is_training(runner):
            return
        loader = runner.train_dataloader
        if not (len(loader) or is_infinite(loader.sampler)):
            raise ValueError(
                f'{len(loader.sampler)} images on each process do not fill a '
                f'batch of {loader.batch_size}: lower '
                'train_dataloader.batch_size'
            )
        images = global_batch_size(runner)
        scaling = runner.auto_scale_lr or {}
        base = scaling.get('base_batch_size', images)
        if scaling.get('enable', False):
            _complete_scaling(runner, images, base)
        elif images != base:
            runner.logger.warning(
                f'the learning rates were chosen for {base} images an '
                f'optimiser step, and there are {images}: add --auto-scale-lr '
                '(auto_scale_lr.enable=True) to scale them'
            )
        runner.logger.info(
            f'{images} images an optimiser step; peak learning rates: '
            + peak_rates(runner)
        )


def _complete_scaling(runner: Runner, images: int, base: int) -> None:
    """Correct what MMEngine's scaling has done to the groups."""
    wrapper = runner.optim_wrapper
    micro_batches = wrapper._accumulative_counts
    for group in wrapper.param_groups:
        if group is getattr(wrapper, 'base_param_settings', None):
            factor = images / base  # not scaled: it is there for the log
        elif 'lr' in group.get('constant', ()):
            factor = base * micro_batches / images
        else:
            factor = micro_batches
        for name in group.keys() & {'lr', 'initial_lr'}:
            group[name] *= factor
    # They have been built, but no step has been taken.
    for scheduler in runner.param_schedulers or ():
        if scheduler.param_name == 'lr':
            groups = wrapper.param_groups
            scheduler.base_values = [group['initial_lr'] for group in groups]


def peak_rates(runner: Runner) -> str:
    """The highest and the lowest learning rate of a group, at their peak.

    Args:
        runner (Runner): The runner, with its optimiser.

    Returns:
        str: For a log; one number where all groups have the same.
    """
    groups = runner.optim_wrapper.optimizer.param_groups
    rates = {group.get('initial_lr', group['lr']) for group in groups}
    ends = sorted({max(rates), min(rates)}, reverse=True)
    return ', '.join(f'{rate:g}' for rate in ends)
