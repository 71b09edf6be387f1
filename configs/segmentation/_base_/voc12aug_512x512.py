# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The data set PASCAL VOC 2012. data_root contains JPEGImages,
# SegmentationClass, ImageSets/Segmentation and, for the 10 582 images of
# trainaug, SegmentationClassAug and ImageSets/Segmentation/trainaug.txt.
_base_ = ['./data_512x512.py']

dataset = dict(type='PascalVOCDataset', data_root='data/VOCdevkit/VOC2012')
train_dataloader = dict(
    dataset=dict(
        data_prefix=dict(
            img_path='JPEGImages', seg_map_path='SegmentationClassAug'
        ),
        ann_file='ImageSets/Segmentation/trainaug.txt',
        **dataset,
    ),
)
val_dataloader = dict(
    dataset=dict(
        data_prefix=dict(
            img_path='JPEGImages', seg_map_path='SegmentationClass'
        ),
        ann_file='ImageSets/Segmentation/val.txt',
        **dataset,
    ),
)
test_dataloader = val_dataloader
