# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The private names of other packages that we use still exist."""

import mmcv.image.io
import pytest
import torch
from mmengine.config import DictAction
from mmengine.dataset import BaseDataset, ConcatDataset
from mmengine.hooks import CheckpointHook
from mmengine.model import ImgDataPreprocessor
from mmengine.optim import AmpOptimWrapper
from mmengine.optim.scheduler.param_scheduler import _ParamScheduler
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmpretrain.apis.model import ModelHub
from mmpretrain.datasets.transforms import ResizeEdge

# Attributes that only instances have are left out; other tests use them.
PRIVATE = [
    (AmpOptimWrapper, '_clip_grad'),
    (BaseDataset, '_serialize_data'),
    (CheckpointHook, '_default_greater_keys'),
    (CheckpointHook, '_save_checkpoint_with_step'),
    (ConcatDataset, '_get_ori_dataset_idx'),
    (DefaultScope, '_instance_dict'),
    (DictAction, '_parse_iterable'),
    (ImgDataPreprocessor(), '_channel_conversion'),
    (ModelHub, '_models_dict'),
    (ResizeEdge, '_resize_img'),
    (Runner, '_maybe_compile'),
    (_ParamScheduler, '_get_value'),
    (mmcv.image.io, '_pillow2array'),
    (torch, '_foreach_lerp_'),
    (torch._dynamo.config, 'optimize_ddp'),
    (torch._functorch.config, 'activation_memory_budget'),
    (torch, '_fused_sdp_choice'),
    (torch.amp.GradScaler, '_found_inf_per_device'),
]


@pytest.mark.parametrize(('owner', 'name'), PRIVATE)
def test_private_names_are_there(owner, name):
    """An override of a missing name would never be called."""
    assert hasattr(owner, name)
