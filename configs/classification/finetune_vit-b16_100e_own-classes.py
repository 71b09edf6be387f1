# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own classes, one folder each, on one GPU:
#   python tools/train.py configs/classification/THIS.py --auto-scale-lr \
#       --cfg-options load_from=CHECKPOINT data_root=/path/to/classes
# or these settings in a config that inherits this one.
_base_ = './finetune_vit-b16_100e_in1k.py'

data_root = None  # of the base, which is not the shorthand below
sets = [f'{stage}_dataloader.dataset' for stage in ('train', 'val', 'test')]
shorthands = dict(
    # train/<class>/*.jpg, val/<class>/*.jpg. Their number follows.
    data_root=' '.join(f'{part}.data_root' for part in sets)
    + ' folders:model.head.num_classes'
    ' folders:model.data_preprocessor.num_classes',
    # Names, where it does not: in shards, or on a server.
    classes='count:model.head.num_classes '
    'count:model.data_preprocessor.num_classes',
    img_size=f'{sets[0]}.pipeline.RandomResizedCrop.scale '
    f'{sets[1]}.pipeline.CenterCrop.crop_size '
    f'{sets[2]}.pipeline.CenterCrop.crop_size model.backbone.img_size '
    f'edge:{sets[1]}.pipeline.ResizeEdge.scale '
    f'edge:{sets[2]}.pipeline.ResizeEdge.scale',
    epochs='train_cfg.max_epochs',
    batch_size='train_dataloader.batch_size',  # of each process
    arch='model.backbone.arch arch:model.head.in_channels',
)

own = dict(dataset=dict(data_root='data/own-classes/'))
train_dataloader = val_dataloader = test_dataloader = own
# With more than five classes: (1, 5).
val_evaluator = test_evaluator = dict(topk=(1,))
param_scheduler = dict(warmup=0.05)  # of the run
