# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# ViT-S/16, as in moca_vit-s16_own-images.py, in place of a ViT-B/16. (The 's'
# of mmpretrain is another network, with 8 layers and 768 channels.)
s16_backbone = dict(
    arch='deit-s',
    init_cfg=dict(
        checkpoint='mmmoca-teacher://'
        'work_dirs/moca_vit-s16_own-images/epoch_200.pth'
    ),
)
s16_head = dict(in_channels=384, channels=384)
s16_mask_head = dict(s16_head, embed_dims=384, num_heads=6)
