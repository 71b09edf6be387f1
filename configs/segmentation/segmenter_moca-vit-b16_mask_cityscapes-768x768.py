# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Fine-tuning as in the paper's Table 6. The authors released no segmentation
# code: this config is assembled from the paper's appendix and Segmenter's
# Cityscapes recipe.
# For fewer images: train_dataloader.dataset.ann_file=splits/100_split0.txt
_base_ = [
    './_base_/segmenter_moca-vit-b16.py',
    './_base_/cityscapes_768x768.py',
    './_base_/schedule_216e.py',
    './_base_/runtime.py',
]
