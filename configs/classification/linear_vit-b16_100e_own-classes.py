# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing on your own classes, one folder each, on one GPU:
#   python tools/train.py configs/classification/THIS.py --auto-scale-lr \
#       --cfg-options load_from=CHECKPOINT data_root=/path/to/classes
# or write these settings in a config that inherits this one.
_base_ = './linear_vit-b16_100e_in1k.py'

# train/<class>/*.jpg, val/<class>/*.jpg. The folders determine the number of
# classes. For shards, or data on a server, name the classes: classes=...
settings = 'own_classes'

own = dict(dataset=dict(data_root='data/own-classes/'))
train_dataloader = val_dataloader = test_dataloader = own
