# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.config import Config

from mmmoca.config_parts import member_configs, short_name


def augment_test(cfg: Config) -> None:
    """Let a test average over augmented copies of each image.

    Args:
        cfg (Config): Changed in place. Its ``tta_pipeline`` and ``tta_model``
            say how. For a classifier they default to those of mmpretrain's
            tool: the image and its mirror image.

    Raises:
        ValueError: If one of the two is missing.
    """
    datasets = [*member_configs(cfg.test_dataloader.dataset)]
    classifies = short_name(cfg.model) == 'ImageClassifier'
    usual_loop = 'type' not in cfg.test_cfg  # no protocol for frozen features
    if classifies and usual_loop:
        *steps, pack = datasets[0].pipeline
        flips = [dict(type='RandomFlip', prob=prob) for prob in (1.0, 0.0)]
        both = dict(type='TestTimeAug', transforms=[flips, [pack]])
        cfg.setdefault('tta_pipeline', [*steps, both])
        cfg.setdefault('tta_model', dict(type='AverageClsScoreTTA'))
    if not cfg.get('tta_pipeline') or not cfg.get('tta_model'):
        raise ValueError(
            '--tta needs tta_pipeline and tta_model in the config, see '
            'TestTimeAug of mmcv'
        )
    for dataset in datasets:
        dataset.pipeline = cfg.tta_pipeline
    hook = dict(type='mmmoca.UnwrappedTTAHook', tta_cfg=cfg.tta_model)
    cfg.custom_hooks = [*cfg.get('custom_hooks', []), hook]
