# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A training step never makes the host wait for the device.

The recipe is rehearsed on fake tensors, which pretend to lie on a GPU; they
have no values that the host could read. On a GPU hooks are watched, too, see
test_precision.
"""

from collections import Counter

import pytest
import torch
from mmengine.config import Config
from mmpretrain.registry import MODELS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ..images import CONFIGS


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


def rehearse(allow_tf32):
    """The forward pass in float16 on a GPU that need not be there."""
    cfg = Config.fromfile(CONFIGS / 'moca_vit-b16_200e.py').model
    cfg.head.allow_tf32 = allow_tf32
    autocast = torch.autocast('cuda', torch.float16)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device('cuda'):
            model = MODELS.build(cfg).train()
        model.data_preprocessor.to('cuda')
        shape = 256, 3, *model.backbone.img_size
        views = [torch.empty(shape, dtype=torch.uint8)] * 2
        with Transfers() as seen, autocast:
            data = model.data_preprocessor(dict(inputs=views), True)
            losses = model(**data, mode='loss')
    update = losses.pop('codebook_update')
    for value in (*losses.values(), update.candidates, update.msd):
        assert value.device.type == 'cuda'
        assert value.dtype == torch.float32
    return seen


@pytest.fixture
def cuda_autocast(monkeypatch):
    """Lets autocast work without a GPU, for fake tensors."""
    name = 'torch.cuda.amp.common.amp_definitely_not_available'
    monkeypatch.setattr(name, lambda: False)


@pytest.mark.parametrize('allow_tf32', [True, False])
def test_recipe_fits_together_on_a_gpu(cuda_autocast, allow_tf32):
    """ViT-B/16 at batch 256: devices, types, and no copy that blocks."""
    seen = rehearse(allow_tf32)
    assert seen.waiting == []
    assert seen.copies == 2  # the views
    # Similarities of all tokens; of decoder tokens logits and two gradients.
    objective = 2 * 512 * 4096 * (196 * 768 + (127 + 88) * 512 * 3)
    assert seen.flops['tf32'] == (objective if allow_tf32 else 0)
    # L_IMG, and the mean similarity of tokens.
    others = seen.flops[torch.float32] - (0 if allow_tf32 else objective)
    assert 0 < others < 0.001 * seen.flops[torch.float16]
