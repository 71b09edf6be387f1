# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own images with annotations in COCO's format:
#   data_root/annotations/{train,val}.json   data_root/{train,val}/*.jpg
# In a config that inherits one with this base, write:
#   data_root = '/path/to/images'
#   classes = ('circle', 'cross')  # categories of the file, in its order
#   img_size, epochs, batch_size = 512, 50, 4
# or give them after --cfg-options. img_size is one number for both sides, or
# two: the limit of the longer side, and the shorter side.
settings = 'own_boxes'

# Like COCO's recipe, but for images of any size.
own_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='LoadImageFromFile', backend_args=None),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomCrop',
        crop_type='relative_range',
        crop_size=(0.6, 0.6),  # smallest share of each side
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
# The schedule spans the run, however long an epoch is.
own_schedule = dict(
    type='mmmoca.WarmupCosineLR', warmup=0.05, convert_to_iter_based=True
)
