# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmcv.cnn import build_norm_layer
from torch import nn

from mmmoca.registry import MODELS


# This is a function because a class would inherit from mmseg's class, and
# pretraining must run without mmseg.
@MODELS.register_module(name='LinearSegmentationHead')
def linear_segmentation_head(
    in_channels: int | list[int],
    norm_cfg: dict | None = None,
    dropout_ratio: float = 0.0,
    **head,
) -> nn.Module:
    """Build a head of batch norm and one linear layer on patch features.

    Registered as ``mmmoca.LinearSegmentationHead``. It is the head of the
    linear probes of DINOv2 and DINOv3. The norm gives the features of all
    encoders the same scale, so that one learning rate suits all of them.

    Args:
        in_channels (int | list[int]): Width of the features. A list gives the
            widths of several maps, which are concatenated.
        norm_cfg (dict, optional): Config of the norm. Defaults to SyncBN.
        dropout_ratio (float): Share of the channels to drop before the norm.
            Defaults to 0.
        **head: Other arguments of mmsegmentation's ``FCNHead``, such as
            ``num_classes``.

    Returns:
        nn.Module: mmsegmentation's ``FCNHead`` without hidden layers.
    """
    from mmseg.models.decode_heads import FCNHead

    channels = in_channels
    if isinstance(in_channels, (list, tuple)):
        head = dict(input_transform='resize_concat') | head
        channels = sum(in_channels)
    built = FCNHead(
        in_channels=in_channels,
        channels=channels,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        **head,
    )
    norm = build_norm_layer(norm_cfg or dict(type='SyncBN'), channels)[1]
    built.convs = nn.Sequential(nn.Dropout2d(dropout_ratio), norm)
    return built
