# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a step moves between host and device, without a device."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class Transfers(TorchDispatchMode):
    """Notes what goes from the host to the device, and products by type.

    Copies that do not block are counted. Others make the host wait, as do
    indices on the host of a tensor on the device. Scalars on the host travel
    with the kernel.
    """

    def __init__(self):
        super().__init__()
        self.waiting, self.copies, self.flops = [], 0, Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        count = flop_registry.get(func.overloadpacket)
        # Which kernel attention gets is up to the GPU: here unfused products.
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
            # The argument of `copy_` has no name here.
            if not (kwargs.get('non_blocking') or args[2:] == (True,)):
                self.waiting.append(f'{func}: {sorted(devices)}')
        return result


COPIES = torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default
