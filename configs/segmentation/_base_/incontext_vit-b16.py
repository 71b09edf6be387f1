# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# In-context segmentation (Hummingbird): the patches of a bank of training
# images vote for the class of each patch of a test image. Nothing is trained.
# The mIoU changes by 10 points with the size of the bank: quote both.
size = (512, 512)

model = dict(
    type='mmpretrain.ImageClassifier',
    data_preprocessor=dict(
        type='mmseg.SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
    ),
    backbone=dict(
        type='mmpretrain.VisionTransformer',
        arch='b',
        img_size=size,
        patch_size=16,
        out_type='featmap',  # patch tokens after the final norm
    ),
)

bank_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    # The crop covers half of the image to all of it.
    dict(
        type='RandomResize',
        _scope_='mmseg',
        scale=size,
        ratio_range=(1.0, 1.41),
        keep_ratio=False,
    ),
    dict(type='RandomCrop', crop_size=size),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='PackSegInputs',
        meta_keys=('sample_idx', 'img_path', 'ori_shape', 'img_shape'),
    ),
]
query_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', _scope_='mmseg', scale=size, keep_ratio=False),
    # After the resizing, so that the true mask keeps its size.
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs', _scope_='mmseg'),
]
test_cfg = dict(
    type='mmmoca.InContextTestLoop',
    bank_dataloader=dict(
        batch_size=8,
        num_workers=8,
        persistent_workers=True,
        sampler=dict(type='mmmoca.SeededSampler', shuffle=False, seed=0),
    ),
    # Number of patches. The features of a ViT-B/16 take 31 GB in float32,
    # which all processes share. With 1024 * 10**2 patches a CPU needs minutes.
    bank_size=1024 * 10**4,
    bank_epochs=2,
    k=30,
    temperature=0.02,
)
