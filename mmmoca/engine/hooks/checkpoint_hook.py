# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from collections import deque
from typing import Any

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend
from mmengine.hooks import CheckpointHook
from mmengine.runner import Runner

from mmmoca.files import write_text
from mmmoca.registry import HOOKS

__all__ = ['AtomicCheckpointHook']


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """:class:`CheckpointHook` that never loses the latest checkpoint.

    On a local disk a checkpoint, the best one too, is written under another
    name and renamed when it is complete. Only then are ``last_checkpoint``
    updated and older checkpoints removed. Arguments are those of
    :class:`CheckpointHook`.
    """

    def _save_checkpoint(self, runner: Runner) -> None:
        super()._save_checkpoint(self._atomic(runner))

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        # A runner that only validates does not prepare the hook for saving.
        if self.save_best:
            super()._save_best_checkpoint(self._atomic(runner), metrics)

    def _atomic(self, runner: Runner) -> 'Runner | _AtomicRunner':
        local = isinstance(self.file_backend, LocalBackend)
        return _AtomicRunner(runner) if local else runner

    def _save_checkpoint_with_step(
        self, runner: Runner, step: int, meta: dict
    ) -> None:
        if not isinstance(self.file_backend, LocalBackend):
            super()._save_checkpoint_with_step(runner, step, meta)
            return
        kept = [old for old in self._kept() if old != step] + [step]
        limit = self.max_keep_ckpts if self.max_keep_ckpts > 0 else len(kept)
        outdated = kept[:-limit]
        kept = kept[len(outdated) :]
        self.keep_ckpt_ids = deque(kept)
        name = self.filename_tmpl.format(step)
        self.last_ckpt = os.path.join(self.out_dir, name)
        runner.message_hub.update_info('keep_ckpt_ids', kept)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        runner.save_checkpoint(
            self.out_dir,
            name,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            meta=meta,
            by_epoch=self.by_epoch,
            **self.args,
        )
        if not is_main_process():
            return
        pointer = os.path.join(runner.work_dir, 'last_checkpoint')
        write_text(pointer, self.last_ckpt)
        for old in outdated:
            path = os.path.join(self.out_dir, self.filename_tmpl.format(old))
            if os.path.isfile(path):
                os.remove(path)

    def _kept(self) -> list[int]:
        # The base class makes the attribute only if it removes any.
        return list(getattr(self, 'keep_ckpt_ids', ()))


class _AtomicRunner:
    """A runner whose checkpoints appear whole or not at all."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def save_checkpoint(self, out_dir: str, filename: str, **kwargs) -> None:
        """Write under another name and rename."""
        path = os.path.join(out_dir, filename)
        self._runner.save_checkpoint(
            out_dir, f'{filename}.incomplete', **kwargs
        )
        if is_main_process():
            os.replace(f'{path}.incomplete', path)
