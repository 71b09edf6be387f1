# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip

import warnings

import torch
from mmengine.utils import digit_version
from mmpretrain.models.backbones.vision_transformer import (
    TransformerEncoderLayer,
)
from torch import nn
from torch._functorch import config as functorch_config
from torch.nn.parallel import DistributedDataParallel

from .steps import unwrap_model


def compile_forward(
    model: nn.Module, options: bool | str | dict | None, micro_batches: int = 1
) -> None:
    """Compile the computations of a training step.

    ``passes`` of the model lists the methods to compile. Each becomes one
    graph. The passes of :class:`~mmmoca.models.MOCA` are the teacher's pass,
    the student's pass with its decoder, and the losses. If a model has no
    ``passes``, its ``forward`` is compiled. The option 'blocks' compiles each
    transformer layer and the losses instead of whole passes. Compiling then
    takes a fraction of the time, as the layers share their graphs.

    MMEngine would compile ``train_step``, which TorchDynamo cannot trace,
    because the optimiser wrapper's autocast and counters are inside.
    Checkpoints and validation do not depend on what is compiled.

    Under DDP, PyTorch splits a graph at the end of each bucket of gradients,
    so that the bucket is sent during the backward pass. This is tested from
    PyTorch 2.11 on. For earlier versions, this function turns the splitting
    off: PyTorch 2.6 cannot split a graph with a
    :class:`torch.autograd.Function`, and up to 2.8 the parts `could overwrite
    each other's memory
    <https://github.com/pytorch/pytorch/pull/160745>`_.

    Args:
        model (nn.Module): Changed in place. DDP may wrap it.
        options (bool | str | dict | None): ``compile`` of the config: True,
            'blocks', or a dict with arguments of :func:`torch.compile`. The
            dict may also contain ``blocks=True`` and ``memory_budget``. The
            budget, from 0 to 1, is the share of the activations that is kept
            for the backward pass, which recomputes the rest. Passes have
            static shapes unless ``dynamic`` says otherwise. False, None and
            an empty dict compile nothing.
        micro_batches (int): Number of micro-batches in an optimiser step.
            Defaults to 1.

    Raises:
        ValueError: If ``options`` is another string, if ``memory_budget`` is
            out of range, or if the mode uses CUDA graphs and a step has
            several micro-batches, whose gradients `would be lost
            <https://github.com/pytorch/pytorch/issues/169545>`_.
    """
    if not options:
        return
    # The warning advises enabling TF32 everywhere. The objective enables it
    # only for its own matrix products (`allow_tf32` of the head).
    warnings.filterwarnings('ignore', 'TensorFloat32 tensor cores')
    blocks, settings, arguments = _read(options, micro_batches)
    split = digit_version(torch.__version__) >= digit_version('2.11')
    if isinstance(model, DistributedDataParallel) and not split:
        settings.append(torch._dynamo.config.patch(optimize_ddp=False))

    def compile_method(owner: nn.Module, name: str, **arguments) -> None:
        compiled = torch.compile(getattr(owner, name), **arguments)
        for setting in settings:
            compiled = setting(compiled)
        setattr(owner, name, compiled)

    inner = unwrap_model(model)
    passes = getattr(inner, 'passes', ['forward'])
    if blocks:
        for module in inner.modules():
            if isinstance(module, TransformerEncoderLayer):
                compile_method(module, 'forward', **arguments)
        # The loss is the only pass that does not consist of layers.
        passes = [name for name in passes if name == 'head.loss']
    for name in passes:
        path, _, method = name.rpartition('.')
        owner = inner.get_submodule(path)
        compile_method(owner, method, **dict(dynamic=False) | arguments)


def _read(
    options: bool | str | dict, micro_batches: int
) -> tuple[bool, list, dict]:
    """Split ``compile`` of a config into its parts.

    Returns:
        tuple[bool, list, dict]: Whether to compile layers; decorators that
        apply compiler settings only to the compiled methods; and
        arguments of :func:`torch.compile`.
    """
    if isinstance(options, str) and options != 'blocks':
        raise ValueError(
            f"compile={options!r}: write True, 'blocks' or a dict"
        )
    if not isinstance(options, dict):
        options = dict(blocks=options == 'blocks')
    arguments = dict(options)
    blocks = arguments.pop('blocks', False)
    budget = arguments.pop('memory_budget', 1)
    if not 0 <= budget <= 1:
        raise ValueError(f'memory_budget={budget} must be in [0, 1]')
    graphs = arguments.get('mode') in ('reduce-overhead', 'max-autotune')
    if graphs and micro_batches > 1:
        raise ValueError(
            'CUDA graphs lose gradients if a step has several micro-batches: '
            "write compile=dict(mode='max-autotune-no-cudagraphs')"
        )
    patch = functorch_config.patch(activation_memory_budget=budget)
    return blocks, [patch] * (budget < 1), arguments
