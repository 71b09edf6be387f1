# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

custom_imports = dict(imports=['projects.paper_ablations.decoders'])
decoder = dict(
    type='mmmoca.CondenserNeck', embed_dims=512, depth=2, num_heads=16
)
model = dict(
    neck=dict(
        _delete_=True,
        type='mmmoca.DecoderPair',
        decoders=[dict(condenser=False, **decoder), decoder],
    ),
    head=dict(
        type='mmmoca.PairHead',
        lambda_img=0.0,
        targets=[dict(type='mmmoca.AssignmentHead')] * 2,
    ),
)
