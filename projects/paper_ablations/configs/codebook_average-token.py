# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

custom_imports = dict(imports=['projects.paper_ablations.word_samplers'])
model = dict(
    codebook=dict(word_sampler=dict(type='mmmoca.AverageTokenSampler'))
)
