# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# A frozen ViT-B/16 whose feature is [AVG], the mean patch token after the
# final norm. (out_type='avg_featmap' would put another norm on the mean.)
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type='VisionTransformer',
        arch='b',
        img_size=224,
        patch_size=16,
        out_type='featmap',
    ),
    neck=dict(type='GlobalAveragePooling'),
)
