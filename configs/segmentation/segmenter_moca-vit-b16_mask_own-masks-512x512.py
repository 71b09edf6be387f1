# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own masks:
#   data_root/images/{train,val}/NAME.jpg
#   data_root/masks/{train,val}/NAME.png   one channel: the index of the class
#                                          of each pixel, 255 to leave it out
# Subfolders are fine if both trees have them. Other suffixes: img_suffix and
# seg_map_suffix of the data sets. In a config that inherits this one:
#   data_root = '/path/to/masks'
#   classes = ('background', 'object')
#   crop_size, epochs, batch_size = 256, 50, 4
# or all of them after --cfg-options.
_base_ = [
    './_base_/segmenter_moca-vit-b16.py',
    './_base_/data_512x512.py',
    './_base_/schedule_216e.py',
    './_base_/runtime.py',
]

sets = [f'{stage}_dataloader.dataset' for stage in ('train', 'val', 'test')]
# Short names of the settings that every run needs.
shorthands = dict(
    data_root=' '.join(f'{part}.data_root' for part in sets),
    # In the order of their indices. mmsegmentation chooses the colours, unless
    # metainfo.palette of the data sets has [R, G, B] for each class.
    classes=' '.join(f'{part}.metainfo.classes' for part in sets)
    + ' count:model.decode_head.num_classes',
    # Height and width, or one number: multiples of the patch, 16.
    crop_size=f'pair:{sets[0]}.pipeline.RandomCrop.crop_size '
    'pair:model.data_preprocessor.size pair:model.backbone.img_size '
    'pair:model.test_cfg.crop_size stride:model.test_cfg.stride',
    # What images are resized to first: the longer side at most, the shorter.
    scale=f'pair:{sets[0]}.pipeline.RandomResize.scale '
    f'pair:{sets[1]}.pipeline.Resize.scale '
    f'pair:{sets[2]}.pipeline.Resize.scale',
    epochs='train_cfg.max_epochs',
    batch_size='train_dataloader.batch_size',  # of each process
    arch='model.backbone.arch arch:model.decode_head.in_channels',
)
names = ('background', 'object')
size = (512, 512)

model = dict(
    data_preprocessor=dict(size=size),
    backbone=dict(img_size=size),
    decode_head=dict(num_classes=len(names)),
    test_cfg=dict(crop_size=size, stride=(341, 341)),
)

train_pipeline = _base_.train_pipeline
train_pipeline[4].cat_max_ratio = 0.95
dataset = dict(
    type='BaseSegDataset',
    _scope_='mmseg',
    data_root='data/my_masks',
    metainfo=dict(classes=names),
    img_suffix='.jpg',
    seg_map_suffix='.png',
)
train_dataloader = dict(
    dataset=dict(
        data_prefix=dict(img_path='images/train', seg_map_path='masks/train'),
        pipeline=train_pipeline,
        **dataset,
    ),
)
val_dataloader = dict(
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='masks/val'),
        **dataset,
    ),
)
test_dataloader = val_dataloader

train_cfg = dict(max_epochs=100)
