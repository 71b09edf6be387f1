# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

from mmengine.device import get_device
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIMIZERS
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch import nn
from torch.utils.data import DataLoader

from mmmoca.checkpoints import CheckpointError, guarded
from mmmoca.checkpoints.run_folder import FolderLock
from mmmoca.config_parts import parts_of
from mmmoca.datasets.image_set import judge_images
from mmmoca.engine.build_errors import explained, unknown_class
from mmmoca.engine.compile import compile_forward
from mmmoca.engine.console import (
    FAILED,
    filter_terminal,
    without_idle_warnings,
)
from mmmoca.engine.hooks.checkpoint_hook import AtomicCheckpointHook
from mmmoca.engine.hooks.look_hook import LookHook
from mmmoca.engine.mmengine import (
    checkpoint_any_input,
    forget_name,
    load_address,
    micro_batches,
    stop_workers,
)
from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.memory import shared_memory
from mmmoca.registry import RUNNERS


@RUNNERS.register_module()
class ConsoleRunner(Runner):
    """The runner of this package's tools.

    It differs from MMEngine's runner in these points:

    - The environment, the config and the list of hooks are in the log file,
      but not on the terminal.
    - It can also train with several processes without GPUs.
    - It compiles the forward pass. MMEngine would compile ``train_step``.
    - It stops the workers of all loaders at the end.
    - The config is written to the work dir only when all hooks have accepted
      the run. From then on, an error is logged with its traceback.
    - If a hook refuses the run, the run's log is removed, unless another run
      may write to the same work dir.
    """

    _begun = False  # whether all hooks have accepted the run

    def __init__(self, *args, **kwargs) -> None:
        with self._watched(kwargs.get('cfg') or {}):
            super().__init__(*args, **kwargs)

    @contextmanager
    def _watched(self, cfg: Mapping) -> Iterator[None]:
        """Log an error of a run that has begun; stop the workers."""
        try:
            with shared_memory(), without_idle_warnings(), explained(cfg):
                yield
        except Exception:
            if self._begun:
                self.logger.exception(FAILED)
            else:
                self._forget()
            raise
        finally:
            stop_workers(self)

    def _forget(self) -> None:
        """Remove the log of a refused run; free its name for a later run."""
        # Without the lock, another run may have its log in this folder.
        if FolderLock.is_held(self.work_dir):
            shutil.rmtree(getattr(self, 'log_dir', ''), ignore_errors=True)
        forget_name(self)

    def build_logger(self, *args, **kwargs) -> logging.Logger:
        """Build the logger; filter what it shows on the terminal."""
        logger = super().build_logger(*args, **kwargs)
        filter_terminal(logger)
        return logger

    def dump_config(self) -> None:
        """Do nothing yet: the work dir may belong to another run."""

    def register_hooks(self, *args, **kwargs) -> None:
        """Register the hooks, and a :class:`LookHook` unless disabled."""
        super().register_hooks(*args, **kwargs)
        options = self.cfg.get('look', {})
        if options is not None:
            self.register_hook(LookHook(**options))

    def call_hook(self, fn_name: str, **kwargs) -> None:
        """Call the hooks; then write the config if they accept a training run.

        A test does not write its config to the work dir, which may contain the
        config of a training run. The test's config is still saved, since
        MMEngine also writes each config to the folder of the log.

        In a resumed epoch MMEngine counts batches from 0. Here ``batch_idx``
        is corrected, so that log lines follow the same iterations as in a run
        that was never stopped.
        """
        if fn_name.endswith('train_iter') and isinstance(
            self.train_loop, EpochBasedTrainLoop
        ):
            done = self.epoch * len(self.train_dataloader)
            kwargs['batch_idx'] = self.iter - done
        super().call_hook(fn_name, **kwargs)
        if fn_name == 'before_train':
            super().dump_config()
        self._begun |= fn_name in ('before_train', 'before_test')

    def wrap_model(
        self, model_wrapper_cfg: dict | None, model: nn.Module
    ) -> nn.Module:
        """Wrap the model for several processes, with or without GPUs."""
        if self.distributed and model_wrapper_cfg is None:
            # MMEngine's default, except that a gradient is a view of the
            # bucket in which it is sent. static_graph is not set, because it
            # fails with gradient accumulation, where the first backward pass
            # sends nothing.
            model_wrapper_cfg = dict(
                type='MMDistributedDataParallel',
                broadcast_buffers=False,
                find_unused_parameters=self.cfg.get(
                    'find_unused_parameters', False
                ),
                gradient_as_bucket_view=True,
            )
        if self.distributed and get_device() == 'cpu':
            # PyTorch has SyncBN for GPUs only.
            model = revert_sync_batchnorm(model)
            kind = model_wrapper_cfg.get('type', 'MMDistributedDataParallel')
            if str(kind).endswith('DataParallel'):
                model_wrapper_cfg.setdefault('device_ids', None)
        return super().wrap_model(model_wrapper_cfg, model)

    def build_optim_wrapper(
        self, optim_wrapper: dict | OptimWrapper
    ) -> OptimWrapper:
        """Build the optimiser wrapper; explain an unknown optimiser."""
        kind = None
        if isinstance(optim_wrapper, dict):
            kind = optim_wrapper.get('optimizer', {}).get('type')
        if isinstance(kind, str) and OPTIMIZERS.get(kind) is None:
            raise ValueError(unknown_class(self.cfg, kind, OPTIMIZERS.name))
        return super().build_optim_wrapper(optim_wrapper)

    def train(self) -> nn.Module:
        """Train, then stop the workers of the loaders."""
        with self._watched(self.cfg):
            return super().train()

    def test(self) -> dict[str, float]:
        """Test, then stop the workers of the loaders."""
        with self._watched(self.cfg):
            return super().test()

    @staticmethod
    def build_dataloader(*args, **kwargs) -> DataLoader:
        """Build a loader that checks each image when it is decoded."""
        loader = Runner.build_dataloader(*args, **kwargs)
        # An endless sampler repeats images. A batch that contains each image
        # more than ten times is probably a slip.
        endless = getattr(loader.sampler, 'infinite', False)
        images = len(loader.sampler) * (10 if endless else 1)
        if not len(loader) and images < loader.batch_size:
            raise ValueError(
                f'{len(loader.sampler)} images per process do not fill a '
                f'batch of {loader.batch_size}: lower '
                'train_dataloader.batch_size'
            )
        judge_images(loader.dataset)
        return loader

    def resume(self, filename: str, *args, **kwargs) -> None:
        """Resume. If that fails, try older checkpoints in the work dir."""
        hooks = [h for h in self.hooks if isinstance(h, AtomicCheckpointHook)]
        problems: dict[str, Exception] = {}
        while filename not in problems:
            try:
                super().resume(filename, *args, **kwargs)
            except Exception as error:
                problems[filename] = error
                if any(hook.take_older(self) for hook in hooks):
                    filename = load_address(self)
            else:
                for name, problem in problems.items():
                    self.logger.warning(f'{name} is skipped: {problem}')
                return
        name, problem = next(iter(problems.items()))
        if isinstance(problem, OSError | RuntimeError | ValueError):
            raise problem
        # An error from MMEngine: a part of the file is missing or has a wrong
        # type.
        raise CheckpointError(
            f'{name} cannot be resumed: {problem!r}'
        ) from problem

    def load_checkpoint(self, filename: str, *args, **kwargs) -> dict:
        """Load a checkpoint with our reader, which runs no code in it."""
        # MMEngine prints what it also logs.
        with redirect_stdout(None):
            return super().load_checkpoint(guarded(filename), *args, **kwargs)

    def _maybe_compile(self, target: str) -> None:
        checkpoint_any_input(
            unwrap_model(self.model),
            parts_of(self.cfg.get('activation_checkpointing')),
        )
        compile_forward(
            self.model,
            self.cfg.get('compile'),
            micro_batches(self.optim_wrapper),
        )
