# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The recipe of the paper (section 4, Table 11): 8 GPUs x 256 images.
_base_ = [
    '../_base_/models/moca_vit-b16.py',
    '../_base_/datasets/imagenet_two-views.py',
    '../_base_/schedules/moca_adamw_200e.py',
    '../_base_/moca_runtime.py',
]

# k-NN as in appendix C.3.
val_evaluator = dict(type='mmmoca.KNNAccuracy')
test_evaluator = val_evaluator
val_cfg = dict(
    type='mmmoca.KNNValLoop',
    bank_dataloader=_base_.bank_dataloader,
    k=(10, 20),
    temperature=0.07,
    fp16=True,
)
test_cfg = dict(
    type='mmmoca.KNNTestLoop',
    bank_dataloader=_base_.bank_dataloader,
    k=(10, 20),
    temperature=0.07,
    fp16=True,
)
