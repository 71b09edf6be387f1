# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# In-context segmentation of your own masks, laid out as for
# segmenter_moca-vit-b16_mask_own-masks-512x512.py:
#   python tools/test.py configs/segmentation/THIS.py CHECKPOINT \
#       --cfg-options data_root=/path/to/masks classes=background,object
_base_ = ['./_base_/incontext_vit-b16.py', './_base_/runtime.py']

settings = 'masks_in_context'  # also img_size, bank_size and arch

dataset = dict(
    type='BaseSegDataset',
    _scope_='mmseg',
    data_root='data/my_masks',
    metainfo=dict(classes=('background', 'object')),
    img_suffix='.jpg',
    seg_map_suffix='.png',
)
test_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='masks/val'),
        pipeline=_base_.query_pipeline,
        **dataset,
    ),
)
test_evaluator = dict(type='IoUMetric', _scope_='mmseg', iou_metrics=['mIoU'])
test_cfg = dict(
    bank_dataloader=dict(
        dataset=dict(
            data_prefix=dict(
                img_path='images/train', seg_map_path='masks/train'
            ),
            pipeline=_base_.bank_pipeline,
            **dataset,
        ),
    ),
    bank_size=1024 * 10**2,  # patches
)
