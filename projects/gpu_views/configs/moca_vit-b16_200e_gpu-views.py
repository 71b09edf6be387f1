# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# MOCA's recipe with views made on the GPU, for machines with few CPU cores per
# GPU. The workers only decode. To do the same with another config, put these
# lines below a `_base_` with its name.
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
