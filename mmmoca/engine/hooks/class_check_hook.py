# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, Runner
from mmpretrain.evaluation import Accuracy
from torch import nn
from torch.utils.data import DataLoader

from mmmoca.datasets.class_names import check_same_classes
from mmmoca.datasets.masks import IGNORED
from mmmoca.engine.mmengine import built_loops, is_training
from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.loaders import check_mask_labels, class_names
from mmmoca.registry import HOOKS

# Parts of mmseg's and mmdet's models that predict classes.
_HEADS = ('decode_head', 'bbox_head', 'roi_head')


@HOOKS.register_module()
class ClassCheckHook(Hook):
    """Compares the classes of a run's data sets with those of its model.

    All data sets must have the same classes. In a classifier, ``num_classes``
    of the head must be the number of these classes. If ``data_preprocessor``
    has ``num_classes``, for Mixup and CutMix, it must be this number, too. A
    test compares the classes of its images with those that its checkpoint was
    trained on, if the checkpoint names them. Validations and tests refuse a
    mask with labels that belong to no class, because mmsegmentation's metric
    would silently leave out such pixels.

    Raises:
        ValueError: Before training or testing, if the classes differ, if a
            classifier has only one class, or if ``topk`` of a metric is above
            the number of classes; later, if a mask has a label that belongs to
            no class.
    """

    priority = 'HIGH'

    def before_run(self, runner: Runner) -> None:
        """Compare the classes of data sets, model and metrics."""
        loops = built_loops(runner)
        loaders = [loop.dataloader for loop in loops]
        trains = is_training(runner)
        _check_classes(unwrap_model(runner.model), loaders, trains)
        for loop in loops:
            _check_topk(loop)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Compare the classes of a test with those of its checkpoint."""
        model = unwrap_model(runner.model)
        if is_training(runner) or not _scores_classes(model):
            return
        meta = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
        for loop in built_loops(runner):
            names = meta.get('classes') or (), class_names(loop.dataloader)
            check_same_classes(*names, ("checkpoint's", 'test'))

    def _after_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: Sequence | dict | None = None,
        mode: str = 'train',
    ) -> None:
        """Refuse a validation or test mask with labels that have no class."""
        if mode == 'train':
            return
        number = len(class_names(getattr(runner, f'{mode}_loop').dataloader))
        head = getattr(unwrap_model(runner.model), 'decode_head', None)
        ignored = getattr(head, 'ignore_index', IGNORED)
        for sample in outputs or ():
            if number and 'gt_sem_seg' in sample:
                check_mask_labels(sample, number, IGNORED, ignored)


def _check_topk(loop: BaseLoop) -> None:
    metrics = getattr(getattr(loop, 'evaluator', None), 'metrics', ())
    tops = [k for m in metrics if isinstance(m, Accuracy) for k in m.topk]
    number = len(class_names(loop.dataloader))
    if 0 < number < max(tops, default=0):
        raise ValueError(
            f'the evaluator has topk={max(tops)}, but there are {number} '
            'classes: write val_evaluator.topk=1 and test_evaluator.topk=1'
        )


def _classifies(model: nn.Module) -> bool:
    return hasattr(getattr(model, 'head', None), 'num_classes')


def _scores_classes(model: nn.Module) -> bool:
    return _classifies(model) or any(hasattr(model, n) for n in _HEADS)


def _check_classes(
    model: nn.Module, loaders: list[DataLoader], trains: bool
) -> None:
    if not _scores_classes(model):
        return
    for loader in loaders:
        names = class_names(loader)
        check_same_classes(class_names(loaders[0]), names, ('train', 'val'))
        if not _classifies(model):
            continue
        found = len(names)
        if found == 1:
            raise ValueError(
                'a classifier learns nothing from images of one class: put '
                'each class into its own folder, <data_root>/train/<class>'
            )
        for part in ('head', 'data_preprocessor'):
            number = getattr(getattr(model, part), 'num_classes', None)
            if found and number not in (None, found):
                advice = f'write model.{part}.num_classes={found}'
                if not trains:
                    advice += (
                        f'; or, if the checkpoint has {number} classes, make '
                        'a folder for each class, even if a class has no '
                        'images'
                    )
                raise ValueError(
                    f'the images have {found} classes, but model.{part} has '
                    f'{number}: {advice}'
                )
