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

    It keeps environment, config and the list of hooks off the terminal (the
    log file has them), trains on processes without a GPU, compiles the
    forward pass where MMEngine compiles ``train_step``, and leaves no worker
    of a loader behind. It writes the config to the work dir once no hook has
    refused the run. Then an error is logged with its traceback. It removes
    the log of a refused run that has its folder to itself.
    """

    _begun = False  # whether no hook has refused the run

    def __init__(self, *args, **kwargs) -> None:
        with self._watched(kwargs.get('cfg') or {}):
            super().__init__(*args, **kwargs)

    @contextmanager
    def _watched(self, cfg: Mapping) -> Iterator[None]:
        """Log the error of a run that has begun; leave no workers."""
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
        """Remove what is written; let a next run have the name."""
        # Another run may have its log there.
        if FolderLock.is_held(self.work_dir):
            shutil.rmtree(getattr(self, 'log_dir', ''), ignore_errors=True)
        forget_name(self)

    def build_logger(self, *args, **kwargs) -> logging.Logger:
        """Build the logger; filter what its terminal shows."""
        logger = super().build_logger(*args, **kwargs)
        filter_terminal(logger)
        return logger

    def dump_config(self) -> None:
        """Do nothing yet: the folder may be that of another run."""

    def register_hooks(self, *args, **kwargs) -> None:
        """Register the hooks, and the one that looks at the data."""
        super().register_hooks(*args, **kwargs)
        options = self.cfg.get('look', {})
        if options is not None:
            self.register_hook(LookHook(**options))

    def call_hook(self, fn_name: str, **kwargs) -> None:
        """Call the hooks; write the config of a run that none refused.

        A test in the folder of a training run leaves its config as it is. The
        folder of each log has the config of its run.

        In a resumed epoch MMEngine counts batches from 0, and so would write
        other lines of the log.
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
            # bucket in which it is sent. static_graph fails under
            # accumulation, whose first backward pass sends nothing.
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
        """Build it; MMEngine does not say which optimiser is unknown."""
        kind = None
        if isinstance(optim_wrapper, dict):
            kind = optim_wrapper.get('optimizer', {}).get('type')
        if isinstance(kind, str) and OPTIMIZERS.get(kind) is None:
            raise ValueError(unknown_class(self.cfg, kind, OPTIMIZERS.name))
        return super().build_optim_wrapper(optim_wrapper)

    def train(self) -> nn.Module:
        """Train, and end the processes that read."""
        with self._watched(self.cfg):
            return super().train()

    def test(self) -> dict[str, float]:
        """Test, and end the processes that read."""
        with self._watched(self.cfg):
            return super().test()

    @staticmethod
    def build_dataloader(*args, **kwargs) -> DataLoader:
        """Build a loader that judges its images, whatever the set."""
        loader = Runner.build_dataloader(*args, **kwargs)
        # An endless sampler repeats images; ten times in a batch is a slip.
        endless = getattr(loader.sampler, 'infinite', False)
        images = len(loader.sampler) * (10 if endless else 1)
        if not len(loader) and images < loader.batch_size:
            raise ValueError(
                f'{len(loader.sampler)} images of each process fill no batch '
                f'of {loader.batch_size}: lower train_dataloader.batch_size'
            )
        judge_images(loader.dataset)
        return loader

    def resume(self, filename: str, *args, **kwargs) -> None:
        """Resume; from an older checkpoint of the folder if that fails."""
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
        # MMEngine's, of a part that is missing or of another type.
        raise CheckpointError(f'{name} holds no run: {problem!r}') from problem

    def load_checkpoint(self, filename: str, *args, **kwargs) -> dict:
        """Load a checkpoint by our reader, which runs no code of it."""
        # It prints what the log says, too.
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
