# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Iterable

import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import DataLoader, Subset

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation import extract_features, knn_top1, raw_pixels
from mmmoca.evaluation.loaders import rng_untouched
from mmmoca.registry import HOOKS

__all__ = ['GainHook', 'advice']

_START = 'k-NN at the start'
_LEAST_GAIN = 5  # percent; 500 queries are right to 2


def advice(before: Iterable[float], after: float) -> str:
    """What to change where a training has taught little.

    Args:
        before (Iterable[float]): k-NN accuracies without it, in percent;
            none where there are no labels.
        after (float): That of the trained network.

    Returns:
        str: Empty where there is nothing to say.
    """
    if after >= max(before, default=-100) + _LEAST_GAIN:
        return ''
    return (
        'k-NN has gained little: train for more steps, start from other '
        'weights (--init), or take the gentle recipe, '
        'model.image_embedding=cls optim_wrapper.optimizer.lr=2.5e-4 '
        'default_hooks.teacher_ema.momentum=0.99. See "A few images" in '
        'docs/pretrain.md'
    )


@HOOKS.register_module()
class GainHook(Hook):
    """Says at the end whether the training was worth it.

    Where the run validates by k-NN, accuracies by raw pixels, by the network
    as it starts and as it ends are measured on the same images and told at
    the end; with what to change where the last is hardly better.

    Args:
        images (int): How many of the bank to search at most, drawn by
            chance, by a quarter as many queries. Defaults to 2000.
    """

    priority = 'LOWEST'

    def __init__(self, images: int = 2000) -> None:
        self.images = images

    def before_train(self, runner: Runner) -> None:
        """Measure what is there without the training."""
        if runner.iter == 0 and hasattr(runner.val_loop, 'bank_dataloader'):
            # Checkpoints keep it for a run that is resumed.
            runner.message_hub.update_info(_START, self._measure(runner))

    def after_train(self, runner: Runner) -> None:
        """Measure the result, and tell of it."""
        before = runner.message_hub.runtime_info.get(_START)
        if before is None or not hasattr(runner.val_loop, 'bank_dataloader'):
            return
        after = self._measure(runner)['network']
        runner.logger.info(
            f'k-NN: {before["pixels"]:.1f} % by raw pixels, '
            f'{before["network"]:.1f} % by the network before training, '
            f'{after:.1f} % after it',
            extra=dict(result=True),
        )
        if change := advice(before.values(), after):
            runner.logger.warning(change)

    @torch.no_grad()
    def _measure(self, runner: Runner) -> dict[str, float]:
        """Accuracies in percent, the same on every process."""
        # The training loop sets the mode before each step.
        loop, model = runner.val_loop, unwrap_model(runner.model).eval()
        encoders = dict(pixels=raw_pixels, network=model.extract_feat)

        def describe(loader: DataLoader, count: int) -> tuple:
            # The same images each time.
            order = np.random.default_rng(0).permutation(len(loader.dataset))
            return extract_features(
                Subset(loader.dataset, order[:count].tolist()),
                model.data_preprocessor,
                encoders,
                num_workers=loader.num_workers,
            )

        with rng_untouched():
            queries, truth = describe(loop.dataloader, self.images // 4)
            bank, labels = describe(loop.bank_dataloader, self.images)
        votes = truth, labels, int(labels.max()) + 1, *loop.settings[-1][1:]
        return {
            name: knn_top1(queries[name], bank[name], *votes)
            for name in encoders
        }
