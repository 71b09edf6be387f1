# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.mmengine import is_training
from mmmoca.engine.steps import log_is_due
from mmmoca.evaluation.gather import gather_rows
from mmmoca.evaluation.rank_me import rank_me
from mmmoca.registry import HOOKS

from .codebook_hook import CodebookHook


@HOOKS.register_module()
class RankMeHook(Hook):
    """Logs RankMe of the teacher's average-pooled embeddings, as ``rank_me``.

    At each log line the hook computes the effective rank of the step's
    embeddings, those of both views on all processes, see
    :func:`~mmmoca.evaluation.rank_me`. The rank cannot be larger than the
    number of embeddings or their width, so compare only runs with the same
    batch size. With accumulated gradients, only the last micro-batch is used.

    Raises:
        ValueError: Before training, if there is no :class:`CodebookHook`.
    """

    def before_run(self, runner: Runner) -> None:
        """Find the hook that keeps the embeddings."""
        found = [h for h in runner.hooks if isinstance(h, CodebookHook)]
        if is_training(runner) and not found:
            raise ValueError(
                'RankMeHook needs CodebookHook: write default_hooks.rank_me='
                'None for a model without a codebook'
            )
        self._codebook_hook = next(iter(found), None)

    def after_train_iter(self, runner: Runner, batch_idx: int, **_) -> None:
        """Log RankMe of the step's embeddings if a log line is due."""
        if log_is_due(self, runner, batch_idx):
            rows = gather_rows(self._codebook_hook.embeddings)
            runner.message_hub.update_scalar(
                'train/rank_me', rank_me(torch.cat(rows))
            )
