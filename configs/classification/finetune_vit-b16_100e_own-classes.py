# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Fine-tuning on your own classes, one folder each, on one GPU:
#   python tools/train.py configs/classification/THIS.py --auto-scale-lr \
#       --cfg-options load_from=CHECKPOINT data_root=/path/to/classes
# or write these settings in a config that inherits this one.
_base_ = './finetune_vit-b16_100e_in1k.py'

# train/<class>/*.jpg, val/<class>/*.jpg. The folders determine the number of
# classes. For shards, or data on a server, name the classes: classes=...
settings = 'own_classes'

own = dict(dataset=dict(data_root='data/own-classes/'))
train_dataloader = val_dataloader = test_dataloader = own
# With more than five classes, (1, 5) also gives the top-5 accuracy.
val_evaluator = test_evaluator = dict(topk=(1,))
param_scheduler = dict(warmup=0.05)  # fraction of the run
