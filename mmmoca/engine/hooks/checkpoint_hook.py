# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from collections import deque
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend
from mmengine.hooks import CheckpointHook
from mmengine.runner import BaseLoop, FlexibleRunner, Runner
from torch import Tensor

from mmmoca.checkpoints import (
    CheckpointError,
    FolderLock,
    find_checkpoints,
    newest_checkpoint,
)
from mmmoca.engine.processes import on_main_process
from mmmoca.files import write_text
from mmmoca.registry import HOOKS

__all__ = ['AtomicCheckpointHook', 'NonFiniteStateError']

_INTERRUPTED = 'interrupted.pth'


class NonFiniteStateError(RuntimeError):
    """What was to be saved has numbers that are not finite."""


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """:class:`CheckpointHook` that loses no checkpoint and trusts none.

    On a local disk a checkpoint, the best one too, is written under another
    name and renamed when it is complete. Only then are ``last_checkpoint``
    updated and older checkpoints removed. Weights that are not finite are
    not written at all.

    A run that is resumed takes the newest checkpoint of its work dir that is
    intact, and says which are not. One that is not resumed does not start in
    a work dir with checkpoints of another, and two do not share one.

    Arguments are those of :class:`CheckpointHook`.

    Raises:
        CheckpointError: Before training, if checkpoints would be
            overwritten, or there are some and none can be resumed.
        RuntimeError: Before training, if another run writes there.
        NonFiniteStateError: In the place of writing such weights.
        OSError: If a checkpoint cannot be written; nothing is left of it.
    """

    _lock: FolderLock | None = None

    def before_run(self, runner: Runner) -> None:
        """Lock the work dir, and look at the checkpoints in it."""
        if not isinstance(runner._train_loop, BaseLoop):
            return  # a test or a validation alone
        found = on_main_process(self._look_at, runner)
        if found is None or runner._has_loaded:
            return
        if isinstance(runner, FlexibleRunner):  # it is past loading
            raise CheckpointError(
                f'{runner.work_dir} has no last_checkpoint to resume: name '
                f'the file by --resume {found}'
            )
        runner._load_from = found

    def before_train(self, runner: Runner) -> None:
        """Say so where there is nothing left to train."""
        # A resumed checkpoint says which files are outdated: it may be of
        # another folder, or of someone else.
        known = runner.message_hub.runtime_info
        kept = known.get('keep_ckpt_ids')
        if kept is not None:
            runner.message_hub.update_info(
                'keep_ckpt_ids', [step for step in kept if type(step) is int]
            )
        super().before_train(runner)
        if self.save_best:
            self._best = {k: self._own(p) for k, p in self._best.items()}
        if runner.iter >= runner.max_iters:
            runner.logger.warning(
                f'the run is complete: it has done {runner.iter} of '
                f'{runner.max_iters} iterations. Raise train_cfg.max_epochs '
                '(max_iters) to go on'
            )

    def after_run(self, runner: Runner) -> None:
        """Release the work dir."""
        if self._lock is not None:
            self._lock.release()

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Refuse to write what is not finite."""
        names = _not_finite(checkpoint['state_dict'])
        if names:
            raise NonFiniteStateError(
                f'{len(names)} tensors of the model have numbers that are '
                f'not finite ({", ".join(names[:3])}), so that no checkpoint '
                f'is written. The last good one is {self.last_good(runner)}: '
                'resume from it with clip_grad in optim_wrapper, bfloat16 or '
                'a lower learning rate'
            )

    def last_good(self, runner: Runner) -> str:
        """The newest checkpoint of the run that is intact, or 'none'."""
        path, _ = newest_checkpoint(runner.work_dir, self.filename_tmpl)
        return str(path or 'none')

    def _look_at(self, runner: Runner) -> str | None:
        """The checkpoint to resume, on the main process."""
        self._lock = FolderLock(runner.work_dir)
        if runner._load_from is not None and runner._resume:
            return None
        if not runner._resume:
            there = find_checkpoints(runner.work_dir, self.filename_tmpl)
            if there:
                raise CheckpointError(
                    f'{runner.work_dir} has checkpoints of another run '
                    f'({there[0].name}), which this one would overwrite: go '
                    'on with that one by --resume (resume=True), or give '
                    'another --work-dir'
                )
            return None
        newest, problems = newest_checkpoint(
            runner.work_dir, self.filename_tmpl
        )
        for problem in problems:
            runner.logger.warning(problem)
        if problems and newest is None:
            raise CheckpointError(
                f'nothing in {runner.work_dir} can be resumed: '
                f'{"; ".join(problems)}'
            )
        return newest and str(newest)

    def _save_checkpoint(self, runner: Runner) -> None:
        super()._save_checkpoint(self._atomic(runner))

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        # A runner that only validates does not prepare the hook for saving.
        if not self.save_best:
            return
        if not isinstance(self.file_backend, LocalBackend):
            super()._save_best_checkpoint(runner, metrics)
            return
        # The base class would remove the best one before it writes the next.
        before, self._best = self._best, dict.fromkeys(self._best)
        try:
            super()._save_best_checkpoint(_AtomicRunner(runner), metrics)
        finally:
            after = self._best
            self._best = {k: after[k] or before[k] for k in before}
        for key, path in before.items():
            replaced = path and after[key] not in (None, path)
            if replaced and is_main_process():
                Path(path).unlink(missing_ok=True)

    def _own(self, best: str | None) -> str | None:
        """The best checkpoint of that name in the run's own folder."""
        if not isinstance(self.file_backend, LocalBackend) or best is None:
            return best
        path = Path(self.out_dir, os.path.basename(best))
        own = path.name.startswith('best_') and path.is_file()
        return str(path) if own else None

    @property
    def _best(self) -> dict[str, str | None]:
        """Paths of the best checkpoints, by metric."""
        if len(self.key_indicators) == 1:
            return dict(only=self.best_ckpt_path)
        return dict(self.best_ckpt_path_dict)

    @_best.setter
    def _best(self, paths: dict[str, str | None]) -> None:
        if len(self.key_indicators) == 1:
            (self.best_ckpt_path,) = paths.values()
        else:
            self.best_ckpt_path_dict = dict(paths)

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
        # Part of what is written, so that a resumed run knows them.
        runner.message_hub.update_info('keep_ckpt_ids', kept)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        self._write(runner, name, meta)
        if not is_main_process():
            return
        Path(self.out_dir, _INTERRUPTED).unlink(missing_ok=True)
        for old in outdated:
            path = os.path.join(self.out_dir, self.filename_tmpl.format(old))
            if os.path.isfile(path):
                os.remove(path)

    def save_interrupted(self, runner: Runner) -> str:
        """Save a run that is about to end between two checkpoints.

        Args:
            runner (Runner): The runner, after an optimiser step.

        Returns:
            str: The file, ``interrupted.pth``.
        """
        meta = dict(epoch=runner.epoch, iter=runner.iter + 1)
        self._write(self._atomic(runner), _INTERRUPTED, meta)
        return os.path.join(self.out_dir, _INTERRUPTED)

    def _write(self, runner: Runner, name: str, meta: dict) -> None:
        """Write a checkpoint, then the file that says which is the last."""
        runner.save_checkpoint(
            self.out_dir,
            name,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            meta=meta,
            by_epoch=self.by_epoch,
            **self.args,
        )
        if is_main_process():
            write_text(
                os.path.join(runner.work_dir, 'last_checkpoint'),
                os.path.join(self.out_dir, name),
            )

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
        path = Path(out_dir, filename)
        incomplete = path.with_name(f'{filename}.incomplete')
        try:
            self._runner.save_checkpoint(out_dir, incomplete.name, **kwargs)
            if is_main_process():
                os.replace(incomplete, path)
        except BaseException as error:
            if is_main_process():
                incomplete.unlink(missing_ok=True)
            # PyTorch's writer raises a RuntimeError that names no file.
            if isinstance(error, OSError) or type(error) is RuntimeError:
                raise OSError(
                    f'{path} could not be written, and nothing is left of it '
                    f'({error}): is the disk full?'
                ) from error
            raise


def _not_finite(state_dict: dict) -> list[str]:
    tensors = {
        name: value
        for name, value in state_dict.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    if not tensors:
        return []
    # One transfer for all of them.
    finite = torch.stack([t.isfinite().all() for t in tensors.values()])
    return [name for name, good in zip(tensors, finite.tolist()) if not good]
