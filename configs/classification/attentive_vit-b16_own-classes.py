# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Attentive probing on your own classes, one folder each, on one GPU:
#   python tools/train.py configs/classification/THIS.py --auto-scale-lr \
#       --cfg-options load_from=CHECKPOINT data_root=/path/to/classes
# or write these settings in a config that inherits this one.
_base_ = './attentive_vit-b16_in1k.py'

# train/<class>/*.jpg, val/<class>/*.jpg. The folders determine the number of
# classes. For shards, or data on a server, name the classes: classes=...
# epochs=N counts epochs instead of steps.
settings = 'own_classes'
train_cfg = dict(max_iters=2000, val_interval=500)
default_hooks = dict(checkpoint=dict(interval=500))
