# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Counts what a step moves between host and device, without a device."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class Transfers(TorchDispatchMode):
    """Counts copies from host to device, and matrix products by type.

    ``copies`` counts all copies; ``waiting`` lists those that make the host
    wait. Indexing a tensor on the device with indices on the host is such a
    copy. Scalars on the host travel with the kernel and do not count.
    """

    def __init__(self):
        super().__init__()
        self.waiting, self.copies, self.flops = [], 0, Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        count = flop_registry.get(func.overloadpacket)
        # Products of attention (bmm) do not count: a GPU fuses them in a
        # kernel of its choice.
        if count is not None and func != torch.ops.aten.bmm.default:
            tf32 = func.overloadpacket is torch.ops.mmmoca.tf32_mm
            kind = 'tf32' if tf32 else result.dtype
            self.flops[kind] += count(*args, **kwargs, out_val=result)
        tensors = [
            leaf
            for leaf in tree_leaves([args, kwargs, result])
            if isinstance(leaf, torch.Tensor) and (leaf.ndim or func in COPIES)
        ]
        devices = {tensor.device.type for tensor in tensors}
        if len(devices) > 1:
            self.copies += 1
            # `copy_` gets `non_blocking` by position.
            if not (kwargs.get('non_blocking') or args[2:] == (True,)):
                self.waiting.append(f'{func}: {sorted(devices)}')
        return result


COPIES = torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default
