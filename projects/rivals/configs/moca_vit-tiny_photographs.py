# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The demo's recipe at 64 pixels on the images that
# projects/rivals/photographs.py cuts. Colours change as in
# moca_vit-tiny_own-images.
_base_ = './moca_vit-tiny_textures.py'

model = dict(backbone=dict(img_size=64))
train_pipeline = _base_.train_pipeline
train_pipeline[1].reduce_to = 136
for view in train_pipeline[2].transforms:
    view[0].scale = 64
    view[1].transforms[0].update(saturation=0.2, hue=0.1)
    view.insert(2, dict(type='mmmoca.RandomGrayscale', prob=0.2))
train_dataloader = dict(
    dataset=dict(data_root='data/photographs/', pipeline=train_pipeline)
)
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = test_pipeline[2].crop_size = 64
