# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The demo's network, in place of a ViT-B/16.
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
