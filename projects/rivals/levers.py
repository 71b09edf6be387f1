# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What can be changed in the quick start's recipe, by name."""

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from projects.rivals.centres import CentreVariant

__all__ = ['LEVERS', 'LambdaScheduleHook']

_MASKS = 'model.masking.mask_ratios', 'model.masking.decoder_mask_ratios'
_CODEBOOK = 'model.codebook'
_TEACHER = 'default_hooks.teacher_ema'
_VIEWS = 'train_dataloader.dataset.pipeline.2.transforms'


def _centred(**variant: str) -> dict[str, object]:
    names = dict(variant, type=CentreVariant.__name__, centre=0.9)
    return {f'{_CODEBOOK}.{key}': value for key, value in names.items()}


# Name -> what changes in the config.
LEVERS: dict[str, dict[str, object]] = {
    'two-rounds': dict(zip(_MASKS, [(0.55, 0.75), (0.35, 0.55)])),
    'mask-40': dict(zip(_MASKS, [(0.4,), (0.2,)])),
    'mask-70': dict(zip(_MASKS, [(0.7,), (0.5,)])),
    'lambda-0.5': {'model.head.lambda_img': 0.5},
    'lambda-0.9': {'model.head.lambda_img': 0.9},
    'lambda-0.5-to-0.9': {
        'default_hooks.lambda_schedule': dict(
            type='LambdaScheduleHook', begin=0.5, end=0.9
        )
    },
    'momentum-0.8': {f'{_TEACHER}.momentum': 0.8},
    'momentum-0.95': {f'{_TEACHER}.momentum': 0.95},
    # Slow while the targets are the untrained encoder's, and fast later.
    'momentum-0.999-to-0.9': {
        f'{_TEACHER}.momentum': 0.999,
        f'{_TEACHER}.end_momentum': 0.9,
    },
    'momentum-0.999-to-0.95': {
        f'{_TEACHER}.momentum': 0.999,
        f'{_TEACHER}.end_momentum': 0.95,
    },
    'end-momentum-1': {f'{_TEACHER}.end_momentum': 1.0},
    'new-words-4': {f'{_CODEBOOK}.num_new_words': 4},
    'words-512': {f'{_CODEBOOK}.num_words': 512},
    'words-1024': {f'{_CODEBOOK}.num_words': 1024},
    'inv-delta-10': {f'{_CODEBOOK}.inv_delta': 10.0},
    'inv-delta-100': {f'{_CODEBOOK}.inv_delta': 100.0},
    'inv-delta-300': {f'{_CODEBOOK}.inv_delta': 300.0},
    'tap-layer-2': {'model.backbone.tap_layer': 2},
    'tap-layer-4': {'model.backbone.tap_layer': 4},
    'kappa-2': {'model.head.kappa': 2.0},
    'kappa-4': {'model.head.kappa': 4.0},
    'lr-5e-4': {'optim_wrapper.optimizer.lr': 5e-4},
    'lr-1e-3': {'optim_wrapper.optimizer.lr': 1e-3},
    'lr-4e-3': {'optim_wrapper.optimizer.lr': 4e-3},
    'generator-lr-5e-3': {'optim_wrapper.paramwise_cfg.prototype_lr': 5e-3},
    'cls': {'model.image_embedding': 'cls'},
    'centred': {f'{_CODEBOOK}.centre': 0.9},
    'centre-0.99': {f'{_CODEBOOK}.centre': 0.99},
    'centre-of-batch': _centred(mean='batch'),
    'centre-of-all': _centred(mean='all'),
    'centred-words': _centred(use='words'),
    'centred-assignments': _centred(use='assignments'),
    # For images that differ in where things are, more than in their stuff.
    'gentle': {
        'model.image_embedding': 'cls',
        f'{_TEACHER}.momentum': 0.99,
        'optim_wrapper.optimizer.lr': 2.5e-4,
    },
    'warm-up-0.3': {'param_scheduler.warmup': 0.3},
    'crops-0.15': {
        f'{_VIEWS}.{view}.0.crop_ratio_range': (0.15, 1.0) for view in (0, 1)
    },
    # The second view as in the paper, before its flip.
    'solarize': {
        f'{_VIEWS}.1.3': dict(
            _delete_=True,
            type='Compose',
            transforms=[
                dict(type='Solarize', thr=128, prob=0.2),
                dict(type='RandomFlip', prob=0.5),
            ],
        )
    },
    'bf16': {'optim_wrapper.dtype': 'bfloat16'},
    'fp32': {'optim_wrapper.dtype': 'float32'},
}


@HOOKS.register_module()
class LambdaScheduleHook(Hook):
    """Moves lambda of equation 1 along a line from first to last step.

    It is a function of the step, so there is nothing to resume.

    Args:
        begin (float): Of the first step, in (0, 1).
        end (float): Of the last step, in (0, 1).
    """

    def __init__(self, begin: float, end: float) -> None:
        self.begin = begin
        self.end = end

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Set the head's ``lambda_img``."""
        done = runner.iter / max(1, runner.max_iters - 1)
        runner.model.head.lambda_img = (
            self.begin + (self.end - self.begin) * done
        )
