# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The quick start's network, in the place of a ViT-B/16, and its images.
tiny_preprocessor = dict(mean=[127.5, 127.5, 127.5], std=[63.75, 63.75, 63.75])
tiny_backbone = dict(
    arch=dict(
        _delete_=True,
        embed_dims=128,
        num_layers=4,
        num_heads=4,
        feedforward_channels=512,
    ),
    img_size=48,
    patch_size=8,
)
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
