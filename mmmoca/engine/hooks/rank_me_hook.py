# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.mmengine import is_training
from mmmoca.engine.steps import log_interval
from mmmoca.evaluation.gather import gather_rows
from mmmoca.evaluation.rank_me import rank_me
from mmmoca.registry import HOOKS

from .codebook_hook import CodebookHook


@HOOKS.register_module()
class RankMeHook(Hook):
    """Logs RankMe of the teacher's image embeddings, as ``rank_me``.

    At each log line the hook takes the embeddings of the step, those of both
    views on all processes, and their effective rank, see
    :func:`~mmmoca.evaluation.rank_me`. It is at most their number and their
    width: curves of one batch size can be compared. With accumulated
    gradients the last micro-batch counts.

    Raises:
        ValueError: Before training, if there is no :class:`CodebookHook`.
    """

    priority = 'HIGHEST'  # before CodebookHook

    def before_run(self, runner: Runner) -> None:
        """Check that there is a codebook."""
        kinds = [type(hook) for hook in runner.hooks]
        if is_training(runner) and CodebookHook not in kinds:
            raise ValueError(
                'RankMeHook needs CodebookHook: write default_hooks.rank_me='
                'None for a model without a codebook'
            )

    def after_train_iter(
        self, runner: Runner, batch_idx: int, outputs: dict, **_
    ) -> None:
        """Measure the embeddings of the step if a log line is due."""
        if self.every_n_inner_iters(batch_idx, log_interval(runner)):
            rows = gather_rows(outputs['codebook_update'].embeddings)
            runner.message_hub.update_scalar(
                'train/rank_me', rank_me(torch.cat(rows))
            )
