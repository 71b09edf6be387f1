# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# In-context segmentation of PASCAL VOC 2012 with a bank of trainaug:
#   python tools/test.py configs/segmentation/THIS.py CHECKPOINT
_base_ = [
    './_base_/incontext_vit-b16.py',
    './_base_/voc12aug_512x512.py',
    './_base_/runtime.py',
]
# Nothing is trained.
train_dataloader = val_dataloader = val_evaluator = None

bank = _base_.train_dataloader.dataset
bank.pipeline = _base_.bank_pipeline
queries = _base_.test_dataloader.dataset
queries.pipeline = _base_.query_pipeline
test_dataloader = dict(dataset=queries)
test_cfg = dict(bank_dataloader=dict(dataset=bank))
