# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.runner import Runner, find_latest_checkpoint

from mmmoca.checkpoints import (
    INTERRUPTED,
    CheckpointError,
    FolderLock,
    find_checkpoints,
    guarded,
    newest_checkpoint,
    not_finite,
    run_record,
)
from mmmoca.engine.processes import on_main_process
from mmmoca.engine.steps import is_training, unwrap_model
from mmmoca.models import MOCA
from mmmoca.registry import HOOKS

__all__ = ['AtomicCheckpointHook', 'NonFiniteStateError']


class NonFiniteStateError(RuntimeError):
    """What was to be saved has numbers that are not finite."""


class _AtomicBackend(LocalBackend):
    """The local disk; files appear complete, and older ones go after that.

    Args:
        outdated (list[str]): Files to remove when the next one is on the
            disk. The backends of one hook share it.
    """

    def __init__(self, outdated: list[str]) -> None:
        self.outdated = outdated

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write a file under another name and rename it."""
        incomplete = Path(f'{filepath}.incomplete')
        try:
            with incomplete.open('wb') as file:
                file.write(obj)
                file.flush()
                os.fsync(file.fileno())
            os.replace(incomplete, filepath)
        except BaseException as error:
            incomplete.unlink(missing_ok=True)
            if isinstance(error, OSError):  # that of a full disk has no name
                error.filename = str(filepath)
            raise
        for path in set(self.outdated) - {str(filepath)}:
            Path(path).unlink(missing_ok=True)
        self.outdated.clear()

    def remove(self, filepath: str | Path) -> None:
        """Remove a file as soon as the next one is complete."""
        self.outdated.append(str(filepath))


register_backend('mmmoca_atomic', _AtomicBackend)


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """:class:`CheckpointHook` that loses no checkpoint and trusts none.

    A checkpoint, the best one too, is written under another name and renamed
    when it is complete. Only then are older ones removed. Weights that are
    not finite are not written at all.

    A run that is resumed takes the newest checkpoint of its work dir that is
    intact, and says which are not. One that is not resumed does not start
    where there are checkpoints of another, and two do not share a folder.

    Args:
        *args: See :class:`CheckpointHook`.
        **kwargs: Likewise, but ``out_dir`` and ``backend_args``: checkpoints
            lie in the work dir.

    Raises:
        CheckpointError: Before training, if checkpoints would be
            overwritten, or there are some and none can be resumed.
        RuntimeError: Before training, if another run writes there.
        NonFiniteStateError: In the place of writing such weights.
        OSError: If a checkpoint cannot be written, of which nothing is left.
        ValueError: If ``out_dir`` is given.
    """

    def __init__(self, *args, **kwargs) -> None:
        # MMEngine makes a backend for each file that it writes.
        backend = dict(backend='mmmoca_atomic', outdated=[])
        super().__init__(*args, backend_args=backend, **kwargs)
        if self.out_dir is not None:
            raise ValueError(
                'checkpoints lie in the work dir: write work_dir in the place '
                "of out_dir, or type='CheckpointHook' for another machine's"
            )
        # One more than are kept: what is written names the one that goes
        # after it, so that a run that is killed in between removes it later.
        self.max_keep_ckpts += self.max_keep_ckpts > 0
        self._lock: FolderLock | None = None

    def before_run(self, runner: Runner) -> None:
        """Lock the work dir, and look at the checkpoints in it."""
        if is_training(runner):
            found = on_main_process(self._find, runner)
            if found:
                runner._load_from = guarded(found)

    def _find(self, runner: Runner) -> str | None:
        """The checkpoint to resume where none is named, on one process."""
        self._lock = FolderLock(runner.work_dir)
        if runner._resume and runner._load_from:
            return None
        folder, problems = Path(runner.work_dir), []
        if runner._resume:
            newest, problems = newest_checkpoint(folder, self.filename_tmpl)
            for problem in problems:
                runner.logger.warning(problem)
            if newest:
                return str(newest)
        left = [
            *problems,
            *find_checkpoints(folder, self.filename_tmpl),
            *folder.glob(INTERRUPTED),
            *folder.glob('best_*.pth'),
        ]
        if left:
            raise CheckpointError(
                f'{folder} has checkpoints of another run, or damaged ones '
                f'({left[0]}): go on by --resume (resume=True) or --resume '
                'FILE, or give another --work-dir'
            )
        return None

    def before_train(self, runner: Runner) -> None:
        """Take up what the run that is resumed has kept."""
        # A file may name any other to be removed: the best one lies here.
        hub = runner.message_hub
        for key, value in list(hub.runtime_info.items()):
            if key.startswith('best_ckpt'):
                name = os.path.basename(value).removeprefix('best_')
                hub.update_info(key, f'{runner.work_dir}/best_{name}')
            elif key == 'keep_ckpt_ids':
                hub.update_info(key, [int(step) for step in value])
        super().before_train(runner)

    def after_run(self, runner: Runner) -> None:
        """Release the work dir."""
        if self._lock is not None:
            self._lock.release()

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Refuse to write what is not finite; record what the encoder is."""
        model = unwrap_model(runner.model)
        record = run_record(runner.cfg.to_dict(), model)
        if isinstance(model, MOCA):
            record['feature'] = model.image_embedding
        checkpoint['meta']['mmmoca'] = record
        # OneCycleLR's has a function, which is not read back.
        for state in checkpoint.get('param_schedulers', ()):
            state.pop('anneal_func', None)
        if names := not_finite(checkpoint['state_dict']):
            raise NonFiniteStateError(
                f'{", ".join(names[:3])} of the model and '
                f'{len(names[3:])} more tensors are not finite. The last good '
                f'checkpoint is {find_latest_checkpoint(runner.work_dir)}. '
                'Resume from it with clip_grad in optim_wrapper, bfloat16 or '
                'a lower learning rate'
            )

    def _save_checkpoint_with_step(
        self, runner: Runner, step: int, meta: dict
    ) -> None:
        self.file_backend.remove(os.path.join(self.out_dir, INTERRUPTED))
        super()._save_checkpoint_with_step(runner, step, meta)
        kept = getattr(self, 'keep_ckpt_ids', ())
        if kept and len(kept) == self.max_keep_ckpts and is_main_process():
            name = self.filename_tmpl.format(kept[0])
            Path(self.out_dir, name).unlink(missing_ok=True)

    def save_interrupted(
        self, runner: Runner, iteration: int, in_validation: bool
    ) -> None:
        """Write ``interrupted.pth``, to end between two checkpoints.

        Args:
            runner (Runner): The runner, after an optimiser step.
            iteration (int): Iterations done.
            in_validation (bool): Whether it ends in a validation.
        """
        meta = dict(
            epoch=runner.epoch, iter=iteration, in_validation=in_validation
        )
        runner.save_checkpoint(
            self.out_dir,
            INTERRUPTED,
            meta=meta,
            backend_args=self.backend_args,
        )
        if is_main_process():
            pointer = Path(runner.work_dir, 'last_checkpoint')
            pointer.write_text(os.path.join(self.out_dir, INTERRUPTED))
