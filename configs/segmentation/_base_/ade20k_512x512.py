# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The data set ADE20K. data_root contains images/{training,validation} and
# annotations/{training,validation}.
_base_ = ['./data_512x512.py']

dataset = dict(type='ADE20KDataset', data_root='data/ade/ADEChallengeData2016')
train_dataloader = dict(
    dataset=dict(
        data_prefix=dict(
            img_path='images/training', seg_map_path='annotations/training'
        ),
        **dataset,
    ),
)
val_dataloader = dict(
    dataset=dict(
        data_prefix=dict(
            img_path='images/validation',
            seg_map_path='annotations/validation',
        ),
        **dataset,
    ),
)
test_dataloader = val_dataloader
