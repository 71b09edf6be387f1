# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Cascade Mask R-CNN on LVIS v1, with mmdet's sampling of rare classes and its
# thresholds. Data set and metric need the package `lvis`. Its release 0.5.3
# fails with NumPy 1.24 and later, so install it from its repository:
#   pip install git+https://github.com/lvis-dataset/lvis-api.git
# Not in the paper.
_base_ = './cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'

data_root = 'data/lvis_v1/'

model = dict(
    num_classes=1203,
    test_cfg=dict(rcnn=dict(score_thr=0.0001, max_per_img=300)),
)
train_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='mmmoca.ClassBalancedDataset',
        _scope_='mmdet',
        oversample_thr=1e-3,
        dataset=dict(
            type='LVISV1Dataset',
            data_root=data_root,
            ann_file='annotations/lvis_v1_train.json',
            data_prefix=dict(img=''),
            filter_cfg=dict(filter_empty_gt=True, min_size=32),
            pipeline=_base_.train_pipeline,
        ),
    )
)
val_dataloader = dict(
    dataset=dict(
        type='LVISV1Dataset',
        data_root=data_root,
        ann_file='annotations/lvis_v1_val.json',
        data_prefix=dict(img=''),
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(
    _delete_=True,
    type='LVISMetric',
    _scope_='mmdet',
    ann_file=data_root + 'annotations/lvis_v1_val.json',
    metric=['bbox', 'segm'],
)
test_evaluator = val_evaluator
