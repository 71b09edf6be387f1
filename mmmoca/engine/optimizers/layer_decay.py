# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Callable
from functools import partial

from mmpretrain.engine.optimizers import (
    LearningRateDecayOptimWrapperConstructor,
)
from torch import nn

from mmmoca.registry import OPTIM_WRAPPER_CONSTRUCTORS

__all__ = ['LayerDecayOptimWrapperConstructor']

_KEYS = (
    *('layer_decay_rate', 'norm_decay_mult', 'bias_decay_mult'),
    *('flat_decay_mult', 'custom_keys', 'bias_lr_mult', 'bypass_duplicate'),
    *('dwconv_decay_mult', 'dcn_offset_lr_mult'),
)


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
        TypeError: If neither the model nor its backbone knows the depth of a
            parameter.
        ValueError: If ``paramwise_cfg`` has a key that nothing reads.
    """

    def __init__(
        self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None
    ) -> None:
        unknown = set(paramwise_cfg or {}) - set(_KEYS)
        if unknown:
            raise ValueError(
                f'paramwise_cfg takes {", ".join(_KEYS)}, but got '
                f'{", ".join(sorted(unknown))}'
            )
        super().__init__(optim_wrapper_cfg, paramwise_cfg)

    def add_params(
        self,
        params: list[dict],
        module: nn.Module,
        prefix: str = '',
        get_layer_depth: Callable | None = None,
        **kwargs,
    ) -> None:
        """Add a group for each parameter, with the rate of its depth.

        Args:
            params (List[dict]): Gets the groups, in place.
            module (nn.Module): The model; in calls from here, a part of it.
            prefix (str): What precedes the part's parameters' names.
            get_layer_depth (Callable, optional): Gives the depth and the
                number of depths for a name. Defaults to None: the model's.
            **kwargs: Passed on.
        """
        if get_layer_depth is None and not hasattr(module, 'get_layer_depth'):
            backbone = getattr(module, 'backbone', None)
            if not hasattr(backbone, 'get_layer_depth'):
                raise TypeError(
                    f'{type(self).__name__} needs a backbone with a method '
                    f'get_layer_depth, which {type(backbone).__name__} of '
                    f'{type(module).__name__} has not: take '
                    'mmpretrain.VisionTransformer, or leave out `constructor` '
                    'of optim_wrapper'
                )
            get_layer_depth = partial(
                backbone.get_layer_depth, prefix='backbone.'
            )
        super().add_params(params, module, prefix, get_layer_depth, **kwargs)
