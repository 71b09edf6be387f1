# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, Runner
from torch import nn
from torch.utils.data import DataLoader, Dataset

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.loaders import check_same_classes, class_names
from mmmoca.registry import HOOKS

__all__ = ['ClassifierCheckHook']


@HOOKS.register_module()
class ClassifierCheckHook(Hook):
    """Refuses data and settings that a classifier cannot be trained with.

    Before anything is trained or tested it compares the classes of the data
    sets with each other and with the head. To train it also asks for
    pretrained weights.

    Args:
        needs_checkpoint (bool): Whether training without ``load_from``, a
            run to resume or a ``Pretrained`` initialisation is an error, as
            it would start from random weights. Defaults to True.

    Raises:
        ValueError: Says what does not fit and what to write instead.
    """

    # Its errors come before those of reading checkpoints.
    priority = 'VERY_HIGH'

    def __init__(self, needs_checkpoint: bool = True) -> None:
        self.needs_checkpoint = needs_checkpoint

    def before_run(self, runner: Runner) -> None:
        """Check the data sets of the loops that are about to run."""
        loaders = {
            role: loop.dataloader
            for role, loop in (
                ('train', runner._train_loop),
                ('val', runner._val_loop),
                ('test', runner._test_loop),
            )
            if isinstance(loop, BaseLoop)
        }
        model = unwrap_model(runner.model)
        prepared = getattr(model.data_preprocessor, 'num_classes', None)
        if prepared not in (None, model.head.num_classes):
            raise ValueError(
                f'model.head.num_classes is {model.head.num_classes}, but '
                f'model.data_preprocessor.num_classes is {prepared}: write '
                'the same number in both places'
            )
        for role, loader in loaders.items():
            _check_classes(role, loader, model)
        if loaders.keys() >= {'train', 'val'}:
            check_same_classes(
                loaders['train'], loaders['val'], ('train', 'val')
            )

    def before_train(self, runner: Runner) -> None:
        """Check that there were weights to start or to go on from."""
        if self.needs_checkpoint and not _has_weights(runner):
            raise ValueError(
                'there is no checkpoint to start from, and a random backbone '
                'says nothing about a pretrained one: add --cfg-options '
                'load_from=CHECKPOINT. To train from scratch on purpose, add '
                'default_hooks.classifier_check.needs_checkpoint=False'
            )


def _check_classes(role: str, loader: DataLoader, model: nn.Module) -> None:
    """Compare the classes of a data set with those of the model."""
    dataset, classes = loader.dataset, class_names(loader)
    number = model.head.num_classes
    place = getattr(dataset, 'img_prefix', '') or type(dataset).__name__
    labels = _labels(dataset, classes)
    found = len(classes) or max(labels, default=number - 1) + 1
    if found == 1 or (role == 'train' and len(labels) == 1):
        raise ValueError(
            f'the {role} images in {place!r} have one class only, and a '
            'classifier needs two: expected one folder a class, '
            '<data_root>/<data_prefix>/<class>/<image>'
        )
    if found > number or (classes and found < number):
        raise ValueError(
            f'the {role} images in {place!r} have {found} classes, but the '
            f'head has {number}: set model.head.num_classes={found} (and '
            'model.data_preprocessor.num_classes, if it is there)'
        )
    if labels and not 0 <= min(labels) <= max(labels) < number:
        raise ValueError(
            f'the labels of the {role} images must lie between 0 and '
            f'{number - 1}, but they go from {min(labels)} to {max(labels)}: '
            f'correct {dataset.ann_file!r}'
        )


def _labels(dataset: Dataset, classes: tuple[str, ...]) -> set[int]:
    """All labels, where they do not follow from the class folders."""
    if not hasattr(dataset, 'get_gt_labels'):
        return set()
    if classes and not getattr(dataset, 'ann_file', ''):
        return set()
    return set(dataset.get_gt_labels().tolist())


def _has_weights(runner: Runner) -> bool:
    """Whether weights of any kind were loaded."""
    model = unwrap_model(runner.model)
    return runner._has_loaded or any(
        isinstance(part.init_cfg, dict)
        and part.init_cfg['type'] == 'Pretrained'
        for part in (model, model.backbone)
    )
