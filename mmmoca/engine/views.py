# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Configures the data loader of a validation without labels."""

import copy

from mmmoca.config_parts import member_configs, short_name

# Keys of the training loader that the validation loader does not copy.
_OF_TRAINING = (
    'batch_sampler',
    'drop_last',
    'num_batch_per_epoch',
    'persistent_workers',
)


def views_loader(training: dict, num_images: int | None = None) -> dict:
    """Configure a loader of views of some training images.

    Args:
        training (dict): ``train_dataloader`` of a config.
        num_images (int, optional): Largest number of images, which are evenly
            spaced in the training set. Defaults to 500.

    Returns:
        dict: The config. The views are transformed as in training, but are
        the same in each pass over the loader.
    """
    loader = {
        key: copy.deepcopy(value)
        for key, value in training.items()
        if key not in _OF_TRAINING
    }
    images = [*member_configs(loader['dataset'])]
    seeded = dict(type='mmmoca.SeedTransforms')
    for part in images:
        steps = part.get('pipeline', ())
        others = [s for s in steps if short_name(s) != 'SeedTransforms']
        part['pipeline'] = [seeded, *others]
    sampler = dict(type='mmmoca.SeededSampler', shuffle=False, seed=0)
    return loader | dict(
        sampler=sampler,
        dataset=dict(
            type='mmmoca.EvenlySpaced',
            dataset=images if len(images) > 1 else images[0],
            number=num_images or 500,
        ),
    )
