# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# For machines of few CPU cores per GPU: the same views, made on the GPU. The
# workers only decode. Any other config takes the same lines below its own
# `_base_`.
_base_ = '../../../configs/moca_vit-b16_200e.py'
custom_imports = dict(
    imports=['projects.gpu_views.canvas', 'projects.gpu_views.preprocessor']
)

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage', reduce_to=512),
    dict(type='mmmoca.PackCanvas', size=512),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
model = dict(
    data_preprocessor=dict(
        type='mmmoca.AugmentingViewsPreprocessor',
        compile=True,
        views=[{{_base_.view_pipeline1}}, {{_base_.view_pipeline2}}],
    )
)
