# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, get_file_backend
from mmengine.hooks import CheckpointHook
from mmengine.runner import BaseLoop, FlexibleRunner, Runner

from mmmoca.checkpoints import (
    INTERRUPTED,
    CheckpointError,
    FolderLock,
    find_checkpoints,
    guarded,
    newest_checkpoint,
    not_finite,
)
from mmmoca.engine.processes import on_main_process
from mmmoca.engine.steps import unwrap_model
from mmmoca.files import write_text
from mmmoca.models import MOCA
from mmmoca.registry import HOOKS

__all__ = ['AtomicCheckpointHook', 'NonFiniteStateError']


class NonFiniteStateError(RuntimeError):
    """What was to be saved has numbers that are not finite."""


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """:class:`CheckpointHook` that loses no checkpoint and trusts none.

    On a local disk a checkpoint, the best one too, is written under another
    name and renamed when it is complete. Only then are ``last_checkpoint``
    updated and older checkpoints removed. Weights that are not finite are
    not written at all.

    A run that is resumed takes the newest of its checkpoints that is intact,
    and says which are not. One that is not resumed does not start where there
    are checkpoints of another, and two do not share a folder. Both hold for
    the work dir, and on a local disk for ``out_dir``.

    Arguments are those of :class:`CheckpointHook`.

    Raises:
        CheckpointError: Before training, if checkpoints would be
            overwritten, or there are some and none can be resumed.
        RuntimeError: Before training, if another run writes there.
        NonFiniteStateError: In the place of writing such weights.
        OSError: Before training, if ``out_dir`` cannot be written to; later
            if a checkpoint cannot be written, of which nothing is left.
    """

    _locks: Sequence[FolderLock] = ()

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
        runner._load_from = guarded(found)

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
        micro_batches = runner.optim_wrapper._accumulative_counts
        unit = len(runner.train_dataloader) if self.by_epoch else 1
        if any(n * unit % micro_batches for n in self._when()):
            runner.logger.warning(
                f'checkpoints fall within a step of {micro_batches} '
                'micro-batches: a run that is resumed from one loses those '
                'before it. Make the iterations between two checkpoints a '
                'multiple, by default_hooks.checkpoint.interval'
            )
        if runner.iter >= runner.max_iters:
            runner.logger.warning(
                f'the run is complete: it has done {runner.iter} of '
                f'{runner.max_iters} iterations. Raise train_cfg.max_epochs '
                '(max_iters) to go on'
            )

    def after_run(self, runner: Runner) -> None:
        """Release the work dir."""
        for lock in self._locks:
            lock.release()

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Refuse to write what is not finite, leave out what is code.

        The feature that a MOCA is judged by is recorded.
        """
        model = unwrap_model(runner.model)
        if isinstance(model, MOCA):
            record = dict(feature=model.image_embedding)
            checkpoint['meta']['mmmoca'] = record
        schedulers = checkpoint.get('param_schedulers', [])
        if isinstance(schedulers, dict):  # of several optimisers
            schedulers = [s for each in schedulers.values() for s in each]
        for state in schedulers:
            # OneCycleLR's would not be unpickled; a new one has its own.
            for key in [key for key, v in state.items() if callable(v)]:
                del state[key]
        names = not_finite(checkpoint['state_dict'])
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
        path, _ = newest_checkpoint(
            runner.work_dir, self.filename_tmpl, self.out_dir
        )
        return str(path or 'none')

    def _look_at(self, runner: Runner) -> str | None:
        """The checkpoint to resume, on the main process."""
        self._locks = [FolderLock(runner.work_dir)]
        kept_in = self._kept_in(runner)
        if kept_in != runner.work_dir:
            key = 'default_hooks.checkpoint.out_dir'
            try:
                self._locks.append(FolderLock(kept_in, key))
            except OSError as error:
                raise OSError(
                    f'checkpoints cannot be written to {kept_in} ({error}): '
                    f'give another {key}'
                ) from error
        pointer = Path(runner.work_dir, 'last_checkpoint')
        if pointer.is_dir():
            raise CheckpointError(
                f'{pointer} is a folder where a file has to say which '
                'checkpoint is the last: move it away'
            )
        if runner._load_from is not None and runner._resume:
            return None
        if runner._resume:
            newest, problems = newest_checkpoint(
                runner.work_dir, self.filename_tmpl, kept_in
            )
            for problem in problems:
                runner.logger.warning(problem)
            if newest is not None:
                return str(newest)
            if problems:
                raise CheckpointError(
                    f'nothing in {runner.work_dir} can be resumed: '
                    f'{"; ".join(problems)}'
                )
        for folder in dict.fromkeys((kept_in, runner.work_dir)):
            self._check_vacant(Path(folder))
        return None

    def _check_vacant(self, folder: Path) -> None:
        """Refuse to start where another run has left checkpoints."""
        there = [
            *find_checkpoints(folder, self.filename_tmpl),
            *folder.glob(INTERRUPTED),
            *sorted(folder.glob('best_*.pth')),
        ]
        if there:
            raise CheckpointError(
                f'{folder} has checkpoints of another run ({there[0].name}), '
                'which this one would overwrite: go on with that one by '
                '--resume (resume=True) or --resume FILE, or give another '
                '--work-dir'
            )

    def _when(self) -> tuple[int, ...]:
        """Epochs, or iterations, of which all checkpoints are sums."""
        return (self.interval, self.save_begin) if self.interval > 0 else ()

    def _kept_in(self, runner: Runner) -> str:
        """The local folder of the checkpoints, before the base class has it.

        Another machine's ``out_dir`` is left to it.
        """
        if self.out_dir in (None, runner.work_dir):
            return runner.work_dir
        backend = get_file_backend(
            self.out_dir, backend_args=self.backend_args
        )
        if not isinstance(backend, LocalBackend):
            return runner.work_dir
        name = os.path.basename(runner.work_dir.rstrip(os.sep))
        return os.path.join(self.out_dir, name)

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
        self.keep_ckpt_ids = deque(kept[-limit:])
        name = self.filename_tmpl.format(step)
        self.last_ckpt = os.path.join(self.out_dir, name)
        # Part of what is written, the outdated ones too: a run that is killed
        # before it has removed them does so when it is resumed.
        runner.message_hub.update_info('keep_ckpt_ids', kept)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        self._write(runner, name, meta)
        if not is_main_process():
            return
        Path(self.out_dir, INTERRUPTED).unlink(missing_ok=True)
        for old in outdated:
            path = os.path.join(self.out_dir, self.filename_tmpl.format(old))
            if os.path.isfile(path):
                os.remove(path)

    def save_interrupted(
        self, runner: Runner, iteration: int, in_validation: bool
    ) -> str:
        """Save a run that is about to end between two checkpoints.

        Args:
            runner (Runner): The runner, after an optimiser step.
            iteration (int): Iterations done.
            in_validation (bool): Whether it ends in a validation.

        Returns:
            str: The file, ``interrupted.pth``.
        """
        meta = dict(
            epoch=runner.epoch, iter=iteration, in_validation=in_validation
        )
        self._write(self._atomic(runner), INTERRUPTED, meta)
        return os.path.join(self.out_dir, INTERRUPTED)

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
                # On the disk before an older one is removed for it.
                with incomplete.open('rb') as file:
                    os.fsync(file.fileno())
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
