# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip

import torch
from mmengine.utils import digit_version
from mmpretrain.models.backbones.vision_transformer import (
    TransformerEncoderLayer,
)
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .steps import unwrap_model


def compile_forward(
    model: nn.Module, options: bool | str | dict | None, micro_batches: int = 1
) -> None:
    """Compile the forward pass, all losses included, into one graph.

    Or compile each transformer layer, which takes a fraction of the time to
    compile: the layers share their graphs, one for each width, and with and
    without gradients.

    MMEngine compiles ``train_step``, which TorchDynamo cannot trace: the
    optimiser wrapper's autocast and counters are inside. Checkpoints and
    validation do not depend on the compiled forward pass.

    Under DDP, PyTorch splits the graph at the end of each bucket of
    gradients, to send it during the backward pass. The graph stays whole
    before PyTorch 2.11, the first version in which splitting was tested:
    PyTorch 2.6 cannot split a graph with a :class:`torch.autograd.Function`,
    and up to 2.8 the parts `could overwrite each other's memory
    <https://github.com/pytorch/pytorch/pull/160745>`_.

    Args:
        model (nn.Module): Changed in place. DDP may wrap it.
        options (bool | str | dict | None): ``compile`` of the config: True,
            'blocks' for each layer, or the arguments of
            :func:`torch.compile`, and ``blocks=True`` for each layer.
        micro_batches (int): Micro-batches of an optimiser step. Defaults to
            1.

    Raises:
        ValueError: For another text, or if the mode uses CUDA graphs and a
            step has several micro-batches, whose gradients `would be lost
            <https://github.com/pytorch/pytorch/issues/169545>`_.
    """
    if not options:
        return
    if isinstance(options, str) and options != 'blocks':
        raise ValueError(
            f"compile={options!r}: write True, 'blocks' or a dict"
        )
    if options in (True, 'blocks'):
        options = dict(blocks=options == 'blocks')
    arguments = dict(options)
    blocks = arguments.pop('blocks', False)
    graphs = arguments.get('mode') in ('reduce-overhead', 'max-autotune')
    if graphs and micro_batches > 1:
        raise ValueError(
            'CUDA graphs lose gradients of several micro-batches: write '
            "compile=dict(mode='max-autotune-no-cudagraphs')"
        )
    if blocks:
        for module in model.modules():
            if isinstance(module, TransformerEncoderLayer):
                module.compile(**arguments)
        return
    inner = unwrap_model(model)
    inner.compile(**arguments)
    split = digit_version(torch.__version__) >= digit_version('2.11')
    if isinstance(model, DistributedDataParallel) and not split:
        # For this model alone: other models of the process may split theirs.
        whole = torch._dynamo.config.patch(optimize_ddp=False)
        inner._compiled_call_impl = whole(inner._compiled_call_impl)
