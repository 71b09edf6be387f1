# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The quick start's network on small images of your own, counted in epochs:
# mmmoca.pretrain(data, out, config='moca_vit-tiny_own-images', epochs=10)
_base_ = './moca_vit-tiny_textures.py'

data_root = None  # of the base, which is not the shorthand below
shorthands = dict(
    data_root='train_dataloader.dataset.data_root',
    # Labelled images, in train/<class>/ and val/<class>/.
    knn_root='val_cfg.data_root test_cfg.data_root',
    epochs='train_cfg.max_epochs',
    batch_size='train_dataloader.batch_size',  # of each process
)
# Centred targets and half of the rate learn much more from digits, and about
# as much from textures and shapes: docs/benchmarks/rivals.md.
model = dict(
    codebook=dict(
        # Each is of another image, and a batch may be small.
        num_new_words=4,
        centre=0.9,
    )
)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
train_dataloader = dict(
    sampler=dict(infinite=False),
    dataset=dict(data_root='data/images/', data_prefix=''),
)
train_cfg = dict(
    _delete_=True, type='EpochBasedTrainLoop', max_epochs=10, val_interval=10
)
val_cfg = dict(data_root='')
param_scheduler = dict(by_epoch=True, convert_to_iter_based=True)
default_hooks = dict(
    checkpoint=dict(by_epoch=True, interval=10, save_best='knn/top1_k20'),
)
log_processor = dict(by_epoch=True)
