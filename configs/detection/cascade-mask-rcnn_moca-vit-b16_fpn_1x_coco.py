# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Cascade Mask R-CNN for 12 epochs: the COCO row of the paper's Table 7, after
# iBOT's recipe. The authors released no detection code.
_base_ = [
    'mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py',
    './_base_/vit-b16_adamw_1x_coco.py',
]

model = dict(
    type='mmmoca.CheckedDetector',
    detector='CascadeRCNN',
    num_classes=80,  # of all heads
    backbone=dict(_delete_=True, **_base_.backbone),
    neck=[
        _base_.pyramid,
        dict(type='FPN', in_channels=[768] * 4, out_channels=256, num_outs=5),
    ],
    roi_head=dict(
        bbox_head=[
            dict(
                type='ConvFCBBoxHead',
                num_shared_convs=4,
                num_shared_fcs=1,
                in_channels=256,
                conv_out_channels=256,
                fc_out_channels=1024,
                roi_feat_size=7,
                bbox_coder=dict(
                    type='DeltaXYWHBBoxCoder',
                    target_means=[0.0, 0.0, 0.0, 0.0],
                    target_stds=target_stds,
                ),
                reg_class_agnostic=False,
                reg_decoded_bbox=True,
                norm_cfg=dict(type='SyncBN'),
                loss_cls=dict(
                    type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0
                ),
                loss_bbox=dict(type='GIoULoss', loss_weight=10.0),
            )
            for target_stds in (
                [0.1, 0.1, 0.2, 0.2],
                [0.05, 0.05, 0.1, 0.1],
                [0.033, 0.033, 0.067, 0.067],
            )
        ]
    ),
)
