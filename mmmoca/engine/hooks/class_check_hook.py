# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from mmmoca.engine.mmengine import built_loops
from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.loaders import check_same_classes, class_names
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class ClassCheckHook(Hook):
    """Compares the classes of a classifier's data sets and of its model.

    All data sets must have the same classes. Their number must be that of the
    head, and that of ``data_preprocessor``, which Mixup and CutMix read.

    Raises:
        ValueError: Before a run, if they differ, or there is only one.
    """

    priority = 'HIGH'

    def before_run(self, runner: Runner) -> None:
        """Compare the classes of data sets and model."""
        loaders = [loop.dataloader for loop in built_loops(runner)]
        _check_classes(unwrap_model(runner.model), loaders)


def _check_classes(model: nn.Module, loaders: list[DataLoader]) -> None:
    if not hasattr(getattr(model, 'head', None), 'num_classes'):
        return
    for loader in loaders:
        check_same_classes(loaders[0], loader, ('train', 'val'))
        found = len(class_names(loader))
        if found == 1:
            raise ValueError(
                'a classifier learns nothing from images of one class: put '
                'those of each into a folder, <data_root>/train/<class>'
            )
        for part in ('head', 'data_preprocessor'):
            number = getattr(getattr(model, part), 'num_classes', None)
            if found and number not in (None, found):
                raise ValueError(
                    f'the images have {found} classes, but model.{part} has '
                    f'{number}: write model.{part}.num_classes={found}'
                )
