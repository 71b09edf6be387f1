# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Segmentation with your own masks:
#   data_root/images/{train,val}/NAME.jpg
#   data_root/masks/{train,val}/NAME.png   one channel: the index of the class
#                                          of each pixel, 255 to leave it out
# Subfolders are fine if both trees have them. In a config that inherits this
# one, write:
#   data_root = '/path/to/masks'
#   classes = ('background', 'object')
#   crop_size, epochs, batch_size = 256, 50, 4
#   img_suffix = '.png'
# or give them after --cfg-options.
_base_ = [
    './_base_/segmenter_moca-vit-b16.py',
    './_base_/data_512x512.py',
    './_base_/schedule_216e.py',
    './_base_/runtime.py',
]

# Sizes are multiples of the patch size, 16. Images are first resized to scale:
# the limit of the longer side, and the shorter side. mmsegmentation chooses
# the colours, unless metainfo.palette of the data sets gives [R, G, B] for
# each class.
settings = 'own_masks'
names = ('background', 'object')
size = (512, 512)

model = dict(
    # Otherwise the ViT would pad an image that is smaller than a window and
    # not a multiple of the patch size, and its map would be stretched.
    data_preprocessor=dict(size=size, test_cfg=dict(size_divisor=16)),
    backbone=dict(img_size=size),
    decode_head=dict(num_classes=len(names)),
    test_cfg=dict(crop_size=size, stride=(341, 341)),
)

train_pipeline = _base_.train_pipeline
train_pipeline[4].cat_max_ratio = 0.95  # RandomCrop
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
