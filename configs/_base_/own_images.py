# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Short names of the settings that runs on one's own images need.
__pipeline = 'train_dataloader.dataset.pipeline'
__view1 = f'{__pipeline}.MultiView.transforms.0'
__view2 = f'{__pipeline}.MultiView.transforms.1'
__edge = 'edge:{0}.ResizeEdge.scale {0}.CenterCrop.crop_size '
shorthands = dict(
    data_root='train_dataloader.dataset.data_root',
    # Labelled images, in train/<class>/ and val/<class>/.
    knn_root='val_cfg.data_root test_cfg.data_root',
    epochs='train_cfg.max_epochs',
    batch_size='train_dataloader.batch_size',  # of each process
    # In pixels. What follows: the border of the bag, what images are reduced
    # to when they are decoded, and what is resized before a central crop.
    img_size='model.backbone.img_size border:model.codebook.border '
    f'decode:{__pipeline}.LoadImage.reduce_to '
    f'{__view1}.RandomResizedCrop.scale {__view2}.RandomResizedCrop.scale '
    + __edge.format('val_dataloader.dataset.pipeline')
    + __edge.format('test_dataloader.dataset.pipeline')
    + __edge.format('val_cfg.bank_dataloader.dataset.pipeline')
    + __edge.format('test_cfg.bank_dataloader.dataset.pipeline'),
    # Probabilities of what is done to views; solarize in the second only.
    **{
        name: f'share:{__view1}.{part}.prob share:{__view2}.{part}.prob'
        for name, part in dict(
            jitter='RandomApply',
            grey='RandomGrayscale',
            blur='GaussianBlur',
            flip='RandomFlip',
        ).items()
    },
    solarize=f'share:{__view2}.Solarize.prob',
)
