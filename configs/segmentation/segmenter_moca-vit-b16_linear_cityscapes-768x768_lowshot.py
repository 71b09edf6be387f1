# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing with 100 or 372 images (paper, Table 6), for 100 epochs.
# For another split: train_dataloader.dataset.ann_file=splits/372_split1.txt
_base_ = ['./segmenter_moca-vit-b16_linear_cityscapes-768x768.py']

# tools/dataset_converters/cityscapes_splits.py writes the splits.
train_dataloader = dict(dataset=dict(ann_file='splits/100_split0.txt'))
train_cfg = dict(max_epochs=100)
