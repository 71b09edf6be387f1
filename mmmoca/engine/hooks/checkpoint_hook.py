# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
import shutil
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.logging import HistoryBuffer
from mmengine.runner import Runner

from mmmoca.checkpoints import CheckpointError, guarded, run_record
from mmmoca.checkpoints.run_folder import (
    INTERRUPTED,
    FolderLock,
    find_checkpoints,
    left_checkpoints,
    newest_checkpoint,
    not_finite,
    refuse_used,
)
from mmmoca.checkpoints.write import plain
from mmmoca.engine.mmengine import (
    is_training,
    load_address,
    resumes,
    set_load_address,
    stop_resuming,
)
from mmmoca.engine.processes import on_main_process
from mmmoca.engine.steps import (
    DivergedError,
    advice_to_go_on,
    stepped,
    unwrap_model,
)
from mmmoca.files import atomic_write
from mmmoca.messages import listed
from mmmoca.models import MOCA
from mmmoca.registry import HOOKS


class NonFiniteStateError(DivergedError):
    """The state to be saved contains numbers that are not finite."""


class _AtomicBackend(LocalBackend):
    """Writes each file atomically, then removes outdated files.

    Args:
        outdated (list[str]): Files to remove as soon as the next file is on
            the disk. All backends of one hook share this list.
    """

    def __init__(self, outdated: list[str]) -> None:
        self.outdated = outdated

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write a file under another name, rename it and remove old files."""
        with (
            atomic_write(filepath) as temporary,
            temporary.open('wb') as file,
        ):
            file.write(obj)
            file.flush()
            os.fsync(file.fileno())
        for path in set(self.outdated) - {str(filepath)}:
            Path(path).unlink(missing_ok=True)
        self.outdated.clear()

    def remove(self, filepath: str | Path) -> None:
        """Remove a file as soon as the next file is complete."""
        self.outdated.append(str(filepath))


register_backend('mmmoca_atomic', _AtomicBackend)


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """:class:`CheckpointHook` that writes a checkpoint whole or not at all.

    The hook writes every checkpoint, including the best one, under another
    name, and renames it when it is complete. Then the hook removes older
    checkpoints. It refuses to write weights that are not finite. A checkpoint
    that is due within an optimiser step (gradient accumulation) is written at
    the end of the step, since gradients are not saved. If
    ``EarlyStoppingHook`` ends the run, this hook writes a last checkpoint.

    A resumed run loads the newest intact checkpoint in its work dir. A warning
    names newer ones that are damaged. A new run refuses a work dir that
    contains checkpoints. Two runs cannot use a work dir at the same time.

    Args:
        *args: See :class:`CheckpointHook`.
        **kwargs: See :class:`CheckpointHook`. ``out_dir`` and ``backend_args``
            are not accepted, because checkpoints are written to the work dir.

    Raises:
        CheckpointError: Before training, if a new run finds checkpoints in
            its work dir, or if a resumed run finds only damaged or best ones.
            (If it finds none, it starts from the beginning.)
        RuntimeError: Before training, if another run writes to the work dir.
        NonFiniteStateError: If weights to be written are not finite.
        OSError: If a checkpoint cannot be written. No part of it is left.
        ValueError: If ``out_dir`` is given; or, before training or at the
            first validation, if the validation does not measure the metric
            that ``save_best`` names.
    """

    _default_greater_keys = (
        *CheckpointHook._default_greater_keys,
        'agreement',
    )

    def __init__(self, *args, **kwargs) -> None:
        # MMEngine builds a backend for each file. All share `outdated`.
        backend = dict(backend='mmmoca_atomic', outdated=[])
        super().__init__(*args, backend_args=backend, **kwargs)
        if self.out_dir is not None:
            raise ValueError(
                'checkpoints are written to the work dir: set work_dir '
                "instead of out_dir, or use type='CheckpointHook' to write to "
                'another machine'
            )
        self._lock: FolderLock | None = None
        self._is_due = False
        self._taken: Path | None = None
        self._passed: set[Path] = set()

    def before_run(self, runner: Runner) -> None:
        """Lock the work dir and find the checkpoint to resume."""
        if is_training(runner):
            self._check_best(runner)
            found = on_main_process(self._open, runner)
            if found:
                self._taken = found
                set_load_address(runner, guarded(found))
            elif resumes(runner) and not load_address(runner):
                runner.logger.info(
                    f'there is no checkpoint to resume in {runner.work_dir}: '
                    'the run starts from the beginning'
                )
                stop_resuming(runner)

    def take_older(self, runner: Runner) -> bool:
        """Choose an older checkpoint if the chosen one cannot be resumed.

        All processes call this.

        Args:
            runner (Runner): The run to resume.

        Returns:
            bool: Whether an older checkpoint was found. False if the user
            chose the checkpoint.
        """
        if self._taken is None:  # the user chose the checkpoint
            return False
        self._passed.add(self._taken)
        self._taken, _ = on_main_process(
            newest_checkpoint,
            runner.work_dir,
            self.filename_tmpl,
            self._passed,
        )
        if self._taken is not None:
            set_load_address(runner, guarded(self._taken))
        return self._taken is not None

    def _check_best(self, runner: Runner) -> None:
        """Refuse a metric of ``save_best`` that no validation measures."""
        best, loop = [*(self.save_best or ())], runner.val_loop
        if best and loop is None:
            runner.logger.info(
                f'save_best={listed(best)}: no best checkpoint is kept, as '
                'the run has no validation'
            )
        names = getattr(loop, 'metric_names', None)
        unknown = {*best} - {'auto', *(names or best)}
        if unknown:
            raise ValueError(
                f'default_hooks.checkpoint.save_best={listed(unknown)}: the '
                f'validation measures {listed(names, 20)}'
            )

    def _open(self, runner: Runner) -> Path | None:
        """Lock the work dir, and find the checkpoint to resume.

        Only the main process calls this.

        Returns:
            Path | None: The newest checkpoint in the work dir; None if the
            user chose the checkpoint, or if there is nothing to resume.
        """
        self._lock = FolderLock(runner.work_dir)
        folder = Path(runner.work_dir)
        for killed in folder.glob('.*.pth-*'):  # left by a killed run
            shutil.rmtree(killed, ignore_errors=True)
        if not resumes(runner):
            named = find_checkpoints(folder, self.filename_tmpl)
            refuse_used(folder, *named)
            return None
        if load_address(runner):
            return None
        newest, problems = newest_checkpoint(folder, self.filename_tmpl)
        for problem in problems:
            runner.logger.warning(problem)
        left = [*problems, *left_checkpoints(folder)]
        if left and not newest:
            raise CheckpointError(
                f'no checkpoint in {folder} can be resumed '
                f'({listed(left, 2)}): restore one, or remove all to start '
                'from the beginning'
            )
        return newest

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Restore the types that MMEngine expects in the history of a run."""
        if not resumes(runner):
            return
        hub = checkpoint['message_hub']
        scalars = hub['log_scalars']
        for name, parts in scalars.items():
            if isinstance(parts, list):  # made by `plain`
                parts = [part.cpu().numpy() for part in parts]
                scalars[name] = HistoryBuffer(*parts)
        # Mark every key as resumed. MMEngine would fail when it next writes to
        # a key that the file marks as not resumed.
        kept = [*scalars, *hub['runtime_info']]
        hub['resumed_keys'] = dict.fromkeys(kept, True)

    def before_train(self, runner: Runner) -> None:
        """Take over the list of best and kept checkpoints of a resumed run."""
        # MMEngine will remove the earlier best file. In a copied work dir, the
        # recorded path leads to the original file, so the path is replaced.
        hub = runner.message_hub
        for key, value in list(hub.runtime_info.items()):
            if key.startswith('best_ckpt'):
                name = os.path.basename(value).removeprefix('best_')
                hub.update_info(key, f'{runner.work_dir}/best_{name}')
            elif key == 'keep_ckpt_ids':
                hub.update_info(key, [int(step) for step in value])
        super().before_train(runner)
        # After each best checkpoint, MMEngine also writes a regular one unless
        # `last_ckpt` is None. Only the regular one can be resumed.
        self.last_ckpt = ''

    def after_val_epoch(
        self, runner: Runner, metrics: dict | None = None
    ) -> None:
        """Write the checkpoint if it is the best one so far.

        Raises:
            ValueError: If ``metrics`` lacks the metric of ``save_best``.
        """
        unknown = {*(self.save_best or ())} - {'auto', *(metrics or ())}
        if metrics and unknown:
            raise ValueError(
                f'default_hooks.checkpoint.save_best={listed(unknown)}: the '
                f'validation measures {listed(metrics, 20)}'
            )
        super().after_val_epoch(runner, metrics)

    def after_train(self, runner: Runner) -> None:
        """Write the last checkpoint of a run that a hook ends early."""
        if _ends_early(runner) and self.save_last:
            self._save_after(runner, runner.iter)
        super().after_train(runner)

    def after_run(self, runner: Runner) -> None:
        """Release the work dir."""
        if self._lock is not None:
            self._lock.release()

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Add a record of the encoder; refuse weights that are not finite."""
        model = unwrap_model(runner.model)
        record = run_record(runner.cfg.to_dict(), model)
        if isinstance(model, MOCA):
            record['feature'] = model.image_embedding
        checkpoint['meta']['mmmoca'] = record
        # OneCycleLR's state contains a function, which our reader refuses.
        for state in checkpoint.get('param_schedulers', ()):
            state.pop('anneal_func', None)
        kept = ('meta', 'message_hub', 'optimizer', 'param_schedulers')
        for key in checkpoint.keys() & kept:
            checkpoint[key] = plain(checkpoint[key])
        if names := not_finite(checkpoint['state_dict']):
            raise NonFiniteStateError(
                f'tensors of the model are not finite: {listed(names)}. '
                f'{advice_to_go_on(runner)} with clip_grad in optim_wrapper, '
                'bfloat16 or a lower learning rate'
            )

    def after_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        """Write a checkpoint that is due now, or was due within this step."""
        super().after_train_iter(runner, *args, **kwargs)
        if self._is_due and stepped(runner):
            self._is_due = False
            self._save_after(runner, runner.iter + 1)

    def _save_after(self, runner: Runner, iterations: int) -> None:
        step = runner.epoch if self.by_epoch else iterations
        meta = dict(epoch=runner.epoch, iter=iterations)
        self._save_checkpoint_with_step(runner, step, meta)

    def _save_checkpoint_with_step(
        self, runner: Runner, step: int, meta: dict
    ) -> None:
        if not (stepped(runner) or _ends_early(runner)):
            self._is_due = True
            return
        self.file_backend.remove(os.path.join(self.out_dir, INTERRUPTED))
        super()._save_checkpoint_with_step(runner, step, meta)

    def save_interrupted(self, runner: Runner) -> None:
        """Write ``interrupted.pth``, from which a stopped run is resumed.

        Args:
            runner (Runner): The runner, in ``before_train_iter`` of the first
                micro-batch of an optimiser step.
        """
        runner.save_checkpoint(
            self.out_dir,
            INTERRUPTED,
            meta=dict(epoch=runner.epoch, iter=runner.iter),
            backend_args=self.backend_args,
        )


def _ends_early(runner: Runner) -> bool:
    """Return whether ``EarlyStoppingHook`` has ended the run."""
    return getattr(runner.train_loop, 'stop_training', False)
