# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.utils import digit_version
from torch.nn.parallel import DistributedDataParallel

from mmmoca.engine.wrapped_models import unwrap_model
from mmmoca.registry import HOOKS

__all__ = ['CompileHook']


@HOOKS.register_module()
class CompileHook(Hook):
    """Lets ``compile`` of the config compile the forward pass.

    MMEngine compiles ``train_step``, with the optimiser wrapper, its
    autocast and its counters inside, which TorchDynamo cannot trace. The
    forward pass, all losses included, compiles into one graph. Checkpoints
    and validation know nothing of it.

    Under DDP, PyTorch splits that graph where a bucket of gradients ends, so
    that it is sent while the backward pass goes on. Before 2.11, the first
    version in which this was tried, the graph stays whole and the gradients
    are sent after it: PyTorch 2.6 refuses to split one with an
    :class:`torch.autograd.Function` inside, and up to 2.8 the parts `could
    overwrite each other's memory
    <https://github.com/pytorch/pytorch/pull/160745>`_.

    The config says ``compile=True`` or has the arguments of
    :func:`torch.compile`, such as ``compile=dict(mode='max-autotune')``, which
    replays CUDA graphs: what a hook keeps of a step's outputs it must clone.
    """

    def before_train(self, runner: Runner) -> None:
        """Compile the model's call in the place of ``train_step``."""
        options = runner.cfg.get('compile')
        if not options:
            return
        vars(runner.model).pop('train_step', None)
        split = digit_version(torch.__version__) >= digit_version('2.11')
        if isinstance(runner.model, DistributedDataParallel) and not split:
            torch._dynamo.config.optimize_ddp = False
        arguments = {} if options is True else dict(options)
        unwrap_model(runner.model).compile(**arguments)
