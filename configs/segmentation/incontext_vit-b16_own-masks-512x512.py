# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# In-context segmentation of your own masks, laid out as for
# segmenter_moca-vit-b16_mask_own-masks-512x512.py:
#   python tools/test.py configs/segmentation/THIS.py CHECKPOINT \
#       --cfg-options data_root=/path/to/masks classes=background,object
_base_ = ['./_base_/incontext_vit-b16.py', './_base_/runtime.py']

sets = 'test_cfg.bank_dataloader.dataset', 'test_dataloader.dataset'
# Short names of the settings that a run may need.
shorthands = dict(
    data_root=' '.join(f'{part}.data_root' for part in sets),
    # In the order of their indices.
    classes=' '.join(f'{part}.metainfo.classes' for part in sets),
    # A multiple of the patch.
    img_size=f'pair:{sets[0]}.pipeline.RandomResize.scale '
    f'pair:{sets[0]}.pipeline.RandomCrop.crop_size '
    f'pair:{sets[1]}.pipeline.Resize.scale pair:model.backbone.img_size',
    bank_size='test_cfg.bank_size',
    arch='model.backbone.arch',
)

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
