# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own images with annotations in COCO's format:
#   data_root/annotations/{train,val}.json   data_root/{train,val}/*.jpg
# In a config that inherits one of those with this base:
#   data_root = '/path/to/images'
#   classes = ('circle', 'cross')  # of the file's categories, in its order
#   img_size, epochs, batch_size = 512, 50, 4
# or all of them after --cfg-options.
sets = [f'{stage}_dataloader.dataset' for stage in ('train', 'val', 'test')]
shorthands = dict(
    data_root=' '.join(f'{part}.data_root' for part in sets)
    + ' file:val_evaluator.ann_file file:test_evaluator.ann_file',
    classes=' '.join(f'{part}.metainfo.classes' for part in sets)
    + ' count:model.num_classes',
    # The longer side at most and the shorter, or one number for both.
    img_size=f'pair:{sets[0]}.pipeline.RandomResize.scale '
    f'pair:{sets[1]}.pipeline.Resize.scale '
    f'pair:{sets[2]}.pipeline.Resize.scale',
    epochs='train_cfg.max_epochs',
    batch_size='train_dataloader.batch_size',  # of each process
    arch='model.backbone.arch arch:model.backbone.out_indices '
    'arch:model.neck.0.in_channels arch:model.neck.1.in_channels '
    'arch:activation_checkpointing',
)

# As COCO's recipe, for images of any size.
own_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='LoadImageFromFile', backend_args=None),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomCrop',
        crop_type='relative_range',
        crop_size=(0.6, 0.6),  # at least, of each side
        allow_negative_crop=True,
    ),
    dict(
        type='RandomResize',
        scale=(1333, 800),
        ratio_range=(0.6, 1.0),
        keep_ratio=True,
    ),
    dict(type='PackDetInputs'),
]
names = ('circle', 'cross', 'square', 'triangle')
own_set = dict(data_root='data/own/', metainfo=dict(classes=names))
own_train = dict(
    own_set,
    ann_file='annotations/train.json',
    data_prefix=dict(img='train/'),
    pipeline=own_pipeline,
)
own_val = dict(
    own_set, ann_file='annotations/val.json', data_prefix=dict(img='val/')
)
own_annotations = 'data/own/annotations/val.json'
# It follows the run, however long an epoch is.
own_schedule = dict(
    type='mmmoca.WarmupCosineLR', warmup=0.05, convert_to_iter_based=True
)
