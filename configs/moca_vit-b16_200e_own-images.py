# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own unlabelled images, in one folder or any tree of folders:
#   tools/dist_train.sh configs/moca_vit-b16_200e_own-images.py 8 \
#       --cfg-options train_dataloader.dataset.data_root=/path/to/images
# With another number of GPUs or batch size add --auto-scale-lr.
_base_ = './moca_vit-b16_200e.py'

train_dataloader = dict(dataset=dict(data_root='data/images/', data_prefix=''))

# There are no labels to validate with. The test stays: its pipeline is that of
# inference, and tools/test.py measures k-NN on a labelled set where you have
# one, by default ImageNet.
val_dataloader = None
val_evaluator = None
val_cfg = None
