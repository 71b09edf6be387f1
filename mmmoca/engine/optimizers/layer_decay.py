# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Callable
from functools import partial

from mmpretrain.engine.optimizers import (
    LearningRateDecayOptimWrapperConstructor,
)
from torch import nn

from mmmoca.registry import OPTIM_WRAPPER_CONSTRUCTORS

KEYS = {
    'layer_decay_rate',
    'custom_keys',
    'norm_decay_mult',
    'bias_decay_mult',
    'flat_decay_mult',
}


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(
    LearningRateDecayOptimWrapperConstructor
):
    """mmpretrain's layer-wise decay of the learning rate, for any model.

    Classifiers know the depth of their parameters. For segmentors and
    detectors this class asks their ``backbone``. In a ViT of n layers with
    ``layer_decay_rate`` r, the learning rate of layer i (counted from 1) is
    multiplied by r**(n + 1 - i), and that of patch and position embeddings by
    r**(n + 1). Parameters after the layers have the full rate.

    ``paramwise_cfg`` accepts mmpretrain's keys: ``layer_decay_rate``,
    ``norm_decay_mult``, ``bias_decay_mult``, ``flat_decay_mult`` and
    ``custom_keys``.

    Raises:
        NotImplementedError: If neither the model nor its backbone has a
            method ``get_layer_depth``.
        ValueError: If ``paramwise_cfg`` has another key, or if the optimiser
            config has no ``weight_decay``.
    """

    def add_params(
        self,
        params: list[dict],
        module: nn.Module,
        prefix: str = '',
        get_layer_depth: Callable | None = None,
    ) -> None:
        """Add a group for each parameter, with the rate for its depth.

        Args:
            params (list[dict]): List that the groups are appended to, in
                place.
            module (nn.Module): The model, or a part of it in recursive calls.
            prefix (str): Prefix of the part's parameter names.
            get_layer_depth (Callable, optional): Function that takes the name
                of a parameter, and returns its depth and the number of depths.
                Defaults to None: the method of the module's ``backbone``, or
                else that of the module.
        """
        if unknown := self.paramwise_cfg.keys() - KEYS:
            raise ValueError(
                f'paramwise_cfg accepts {sorted(KEYS)}, got {sorted(unknown)}'
            )
        if self.base_wd is None:
            raise ValueError(
                'layer decay needs optim_wrapper.optimizer.weight_decay: set '
                'it to 0 for no weight decay'
            )
        depth = getattr(getattr(module, 'backbone', 0), 'get_layer_depth', 0)
        if depth and get_layer_depth is None:
            get_layer_depth = partial(depth, prefix='backbone.')
        super().add_params(params, module, prefix, get_layer_depth)
