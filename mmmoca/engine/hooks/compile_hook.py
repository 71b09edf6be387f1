# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.wrapped_models import unwrap_model
from mmmoca.registry import HOOKS

__all__ = ['CompileHook']


@HOOKS.register_module()
class CompileHook(Hook):
    """Lets ``compile`` of the config compile the forward pass.

    MMEngine compiles ``train_step``, with the optimiser wrapper, its
    autocast and its counters inside, which TorchDynamo cannot trace. The
    forward pass, all losses included, compiles into one graph.

    The config says ``compile=True`` or has the arguments of
    :func:`torch.compile`, such as ``compile=dict(mode='max-autotune')``, which
    replays CUDA graphs: what a hook keeps of a step's outputs it must clone.
    """

    def before_train(self, runner: Runner) -> None:
        """Compile ``forward`` in the place of ``train_step``."""
        options = runner.cfg.get('compile')
        if not options:
            return
        vars(runner.model).pop('train_step', None)
        arguments = {} if options is True else dict(options)
        unwrap_model(runner.model).compile(**arguments)
