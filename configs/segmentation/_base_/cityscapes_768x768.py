# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The data set Cityscapes. data_root contains leftImg8bit/{train,val} and
# gtFine/{train,val} with *_gtFine_labelTrainIds.png, which
# csCreateTrainIdLabelImgs makes.
_base_ = ['./data_512x512.py']

sides = (2048, 1024)  # width, height
train_pipeline = _base_.train_pipeline
train_pipeline[3].scale = sides  # RandomResize
train_pipeline[4].crop_size = (768, 768)  # RandomCrop
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = sides  # Resize

dataset = dict(type='CityscapesDataset', data_root='data/cityscapes/')
train_dataloader = dict(
    dataset=dict(
        ann_file='',  # or a split: names without suffix, one per line
        data_prefix=dict(
            img_path='leftImg8bit/train', seg_map_path='gtFine/train'
        ),
        pipeline=train_pipeline,
        **dataset,
    ),
)
val_dataloader = dict(
    dataset=dict(
        data_prefix=dict(
            img_path='leftImg8bit/val', seg_map_path='gtFine/val'
        ),
        pipeline=test_pipeline,
        **dataset,
    ),
)
test_dataloader = val_dataloader
