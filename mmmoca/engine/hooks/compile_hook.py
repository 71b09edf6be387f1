# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.utils import digit_version
from torch.nn.parallel import DistributedDataParallel

from mmmoca.engine.steps import unwrap_model
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
    :func:`torch.compile`, such as
    ``compile=dict(mode='max-autotune-no-cudagraphs')``. Modes that replay CUDA
    graphs reuse the memory of a step's outputs, which a hook that keeps them
    must clone, and of its gradients: over several micro-batches these `would
    be lost <https://github.com/pytorch/pytorch/issues/169545>`_.

    Raises:
        ValueError: Before training, if the config asks for CUDA graphs and
            for several micro-batches a step.
    """

    def before_train(self, runner: Runner) -> None:
        """Compile the model's call in the place of ``train_step``."""
        options = runner.cfg.get('compile')
        if not options:
            return
        arguments = {} if options is True else dict(options)
        graphs = arguments.get('mode') in ('reduce-overhead', 'max-autotune')
        graphs |= (arguments.get('options') or {}).get(
            'triton.cudagraphs', False
        )
        if graphs and runner.optim_wrapper._accumulative_counts > 1:
            raise ValueError(
                f'compile={arguments} replays CUDA graphs, which lose '
                'gradients of several micro-batches: write compile=dict(mode='
                "'max-autotune-no-cudagraphs') or compile=True, or "
                'optim_wrapper.accumulative_counts=1'
            )
        vars(runner.model).pop('train_step', None)
        split = digit_version(torch.__version__) >= digit_version('2.11')
        if isinstance(runner.model, DistributedDataParallel) and not split:
            torch._dynamo.config.optimize_ddp = False
        unwrap_model(runner.model).compile(**arguments)
