# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './table8c_both-decoders.py'

custom_imports = dict(
    imports=[
        'projects.paper_ablations.decoders',
        'projects.paper_ablations.targets',
    ]
)
decoder = dict(
    type='mmmoca.CondenserNeck', embed_dims=512, depth=4, num_heads=16
)
pixels = dict(type='mmmoca.PixelHead', patch_size=16)
model = dict(
    neck=dict(decoders=[dict(condenser=False, **decoder), decoder]),
    head=dict(targets=[pixels, dict(condenser=True, **pixels)]),
)
