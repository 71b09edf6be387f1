# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The demo's drawn textures, in squares of 48 pixels.
tiny_crop = dict(
    type='mmmoca.RandomResizedCrop', scale=48, crop_ratio_range=(0.3, 1.0)
)
tiny_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='mmmoca.ResizeEdge', scale=48, edge='short'),
    dict(type='CenterCrop', crop_size=48),
    dict(type='PackInputs'),
]
tiny_data = 'data/textures/'  # or any folder of classes
tiny_loader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root=tiny_data, pipeline=tiny_pipeline),
)
