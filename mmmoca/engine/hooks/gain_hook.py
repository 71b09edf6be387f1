# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Callable, Mapping

import torch
from mmengine.hooks import Hook
from mmengine.logging import MessageHub
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation import extract_features, knn_top1, raw_pixels
from mmmoca.evaluation.loaders import rng_untouched
from mmmoca.registry import HOOKS

from .step_log_hook import StepLogHook

__all__ = ['GainHook', 'advice']

_START = 'k-NN at the start'
_LEAST_GAIN = 5  # percent; 500 queries are right to 2


def advice(before: Mapping[str, float], after: float, hub: MessageHub) -> str:
    """What to change where a training has taught little.

    Args:
        before (Mapping[str, float]): k-NN accuracies without it, in percent;
            none where there are no labels.
        after (float): That of the trained network.
        hub (MessageHub): Of the run.

    Returns:
        str: Empty where there is nothing to say.
    """
    signs = []
    if before and after < max(before.values()) + _LEAST_GAIN:
        signs.append('k-NN has gained little')
    information = hub.log_scalars.get('train/image_information')
    if information is not None:
        values = information.data[0]
        if values[-1] < StepLogHook.kept_information * values.max():
            signs.append('image_information has fallen below a third')
    if not signs:
        return ''
    return (
        f'{" and ".join(signs)}: train for more steps, start from other '
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
            model = unwrap_model(runner.model)
            encoders = dict(pixels=raw_pixels, network=model.extract_feat)
            found = self._measure(runner, encoders)
            # Checkpoints keep it for a run that is resumed.
            runner.message_hub.update_info(_START, found)

    def after_train(self, runner: Runner) -> None:
        """Measure the result, and tell of it."""
        before = runner.message_hub.runtime_info.get(_START)
        if before is None or not hasattr(runner.val_loop, 'bank_dataloader'):
            return
        model = unwrap_model(runner.model)
        found = self._measure(runner, dict(network=model.extract_feat))
        after = found['network']
        runner.logger.info(
            f'k-NN: {before["pixels"]:.1f} % by raw pixels, '
            f'{before["network"]:.1f} % by the network before training, '
            f'{after:.1f} % after it',
            extra=dict(result=True),
        )
        change = advice(before, after, runner.message_hub)
        if change:
            runner.logger.warning(change)

    @torch.no_grad()
    def _measure(
        self, runner: Runner, encoders: dict[str, Callable[[Tensor], Tensor]]
    ) -> dict[str, float]:
        """Accuracy by each encoder, in percent; on every process the same."""
        loop, model = runner.val_loop, unwrap_model(runner.model)
        training = model.training
        model.eval()
        found = []
        with rng_untouched():
            for loader, count in (
                (loop.dataloader, self.images // 4),
                (loop.bank_dataloader, self.images),
            ):
                found.append(
                    extract_features(
                        _some(loader, count),
                        model.data_preprocessor,
                        encoders,
                        64,
                        loader.num_workers,
                    )
                )
        model.train(training)
        (queries, truth), (bank, labels) = found
        _, k, temperature = loop.settings[-1]
        classes = int(torch.cat((truth, labels)).max()) + 1
        return {
            name: knn_top1(
                queries[name],
                bank[name],
                truth,
                labels,
                classes,
                min(k, len(labels)),
                temperature,
            )
            for name in encoders
        }


def _some(loader: DataLoader, count: int) -> Subset:
    """So many images of a loader, the same ones each time."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(loader.dataset), generator=generator)
    return Subset(loader.dataset, order[:count].tolist())
