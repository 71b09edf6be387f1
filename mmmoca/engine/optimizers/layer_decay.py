# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Callable
from functools import partial

from mmpretrain.engine.optimizers import (
    LearningRateDecayOptimWrapperConstructor,
)
from torch import nn

from mmmoca.registry import OPTIM_WRAPPER_CONSTRUCTORS

__all__ = ['LayerDecayOptimWrapperConstructor']

KEYS = {
    *('layer_decay_rate', 'custom_keys'),
    *('norm_decay_mult', 'bias_decay_mult', 'flat_decay_mult'),
}


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(
    LearningRateDecayOptimWrapperConstructor
):
    """mmpretrain's layer-wise decay of the learning rate, for any model.

    Segmentors and detectors do not tell the depth of their parameters, as
    classifiers do; here their ``backbone`` is asked. With a ViT of n layers
    and ``layer_decay_rate`` r, layer i (counted from 1) has the learning rate
    times r**(n + 1 - i), patch and position embeddings times r**(n + 1), and
    all that follows the layers has it in full.

    ``paramwise_cfg`` takes mmpretrain's keys: ``layer_decay_rate``,
    ``norm_decay_mult``, ``bias_decay_mult``, ``flat_decay_mult`` and
    ``custom_keys``.

    Raises:
        NotImplementedError: If neither the model nor its backbone has a
            method ``get_layer_depth``.
        ValueError: If ``paramwise_cfg`` has another key.
    """

    def add_params(
        self,
        params: list[dict],
        module: nn.Module,
        prefix: str = '',
        get_layer_depth: Callable | None = None,
    ) -> None:
        """Add a group for each parameter, with the rate of its depth.

        Args:
            params (List[dict]): Gets the groups, in place.
            module (nn.Module): The model; in calls from here, a part of it.
            prefix (str): What precedes the part's parameters' names.
            get_layer_depth (Callable, optional): Gives the depth and the
                number of depths for a name. Defaults to None: the backbone's.
        """
        if unknown := self.paramwise_cfg.keys() - KEYS:
            raise ValueError(
                f'paramwise_cfg takes {sorted(KEYS)}, got {sorted(unknown)}'
            )
        depth = getattr(getattr(module, 'backbone', 0), 'get_layer_depth', 0)
        if depth and get_layer_depth is None:
            get_layer_depth = partial(depth, prefix='backbone.')
        super().add_params(params, module, prefix, get_layer_depth)
