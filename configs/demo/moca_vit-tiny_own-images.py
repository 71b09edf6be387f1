# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining of the demo's network on your own small images, in epochs:
# mmmoca.pretrain(data, out, config='moca_vit-tiny_own-images', epochs=10)
_base_ = './moca_vit-tiny_textures.py'

# With centred targets and half the learning rate the network learns much more
# from digits, and about as much from textures and shapes:
# docs/benchmarks/rivals.md. 'auto' numbers are computed from the images, the
# batch size and the steps, as in moca_vit-b16_own-images.
model = dict(codebook=dict(num_words='auto', num_new_words='auto', centre=0.9))
optim_wrapper = dict(optimizer=dict(lr=1e-3))
# The rate is 1e-3 (B / 16)^.5: docs/benchmarks/own_images.md.
auto_scale_lr = dict(enable=True, base_batch_size=16, rule='sqrt')
train_pipeline = _base_.train_pipeline
# Colours alone would tell which views of a photo belong together.
for view in train_pipeline[2].transforms:
    view[1].transforms[0].update(saturation=0.2, hue=0.1)
    view.insert(2, dict(type='mmmoca.RandomGrayscale', prob=0.2))
train_dataloader = dict(
    # In the same time the network learns more from steps of 16 images than
    # from steps of 8 or 32: docs/benchmarks/own_images.md.
    batch_size=16,
    sampler=dict(infinite=False),
    dataset=dict(
        data_root='data/images/', data_prefix='', pipeline=train_pipeline
    ),
)
train_cfg = dict(
    _delete_=True, type='EpochBasedTrainLoop', max_epochs=10, val_interval=10
)
val_cfg = dict(data_root='', agreement=dict(num_images=500))
param_scheduler = dict(warmup=0.15, by_epoch=True, convert_to_iter_based=True)
default_hooks = dict(
    teacher_ema=dict(momentum='auto'),
    checkpoint=dict(by_epoch=True, interval=10, save_best='knn/top1_k20'),
)
log_processor = dict(by_epoch=True)
