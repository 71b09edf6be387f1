# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Attentive probing of your own classes, one folder each, on one GPU:
#   python tools/train.py configs/classification/THIS.py --auto-scale-lr \
#       --cfg-options load_from=CHECKPOINT data_root=/path/to/classes
# or these settings in a config that inherits this one.
_base_ = './attentive_vit-b16_in1k.py'

data_root = None  # of the base, which is not the shorthand below
parts = (
    'train_dataloader.dataset.dataset',
    'val_dataloader.dataset.datasets.0.dataset',
    'val_dataloader.dataset.datasets.1',
    'test_dataloader.dataset.datasets.0.dataset',
    'test_dataloader.dataset.datasets.1',
)
shorthands = dict(
    # train/<class>/*.jpg, val/<class>/*.jpg. Their number follows.
    data_root=' '.join(f'{part}.data_root' for part in parts)
    + ' folders:model.head.num_classes',
    # Names, where it does not: in shards, or on a server.
    classes='count:model.head.num_classes',
    img_size=f'{parts[0]}.pipeline.RandomResizedCrop.scale '
    + ' '.join(
        f'{part}.pipeline.CenterCrop.crop_size '
        f'edge:{part}.pipeline.ResizeEdge.scale'
        for part in parts[1:]
    )
    + ' model.backbone.img_size',
    steps='train_cfg.max_iters',
    batch_size='train_dataloader.batch_size',  # of each process
    arch='model.backbone.arch',
)
train_cfg = dict(max_iters=2000, val_interval=500)
default_hooks = dict(checkpoint=dict(interval=500))
