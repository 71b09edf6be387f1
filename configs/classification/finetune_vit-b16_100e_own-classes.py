# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own classes, one folder each. Copy this file, change the first two
# settings (and val's folder, if you have another) and run, on one GPU:
#   python tools/train.py MY_COPY.py --auto-scale-lr \
#       --cfg-options load_from=CHECKPOINT
_base_ = './finetune_vit-b16_100e_in1k.py'

num_classes = 10
data_root = 'data/own-classes/'  # train/<class>/*.jpg, val/<class>/*.jpg

model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    head=dict(num_classes=num_classes),
)
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
val_evaluator = dict(topk=(1,))  # with more than five classes: (1, 5)
test_evaluator = val_evaluator
