# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.runner.base_loop import BaseLoop

from mmmoca.datasets.mask_checks import check_files, check_masks
from mmmoca.datasets.segmentation_checks import (
    check_channels,
    check_classes,
    check_crops,
    members,
)
from mmmoca.engine.processes import on_main_process
from mmmoca.engine.steps import unwrap_model
from mmmoca.models import check_patch_size
from mmmoca.registry import HOOKS

__all__ = ['SegDataCheckHook']


@HOOKS.register_module()
class SegDataCheckHook(Hook):
    """Refuses data that a segmentor would be trained wrong on, or fail on.

    Before weights are loaded, all data sets of the run are checked: sizes of
    crops against the patch, classes of the heads against those of the data
    set, every image and mask for existence, and masks, as many as
    ``num_masks`` says, for their size and label ids. So are the means against
    the channels of the backbone, and the patch that a
    :class:`~mmmoca.models.ViTFeaturePyramid` counts on.

    Args:
        num_masks (int, optional): Masks of each data set that are read,
            evenly spaced. None means all. Defaults to 200.

    Raises:
        SegDataError: On every rank, with what to write instead.
        ValueError: If the pyramid counts on another patch.
    """

    # Its errors come before those of reading checkpoints.
    priority = 'HIGH'

    def __init__(self, num_masks: int | None = 200) -> None:
        self.num_masks = num_masks

    def before_run(self, runner: Runner) -> None:
        """Check what the runner has built for the run."""
        check_patch_size(unwrap_model(runner.model))
        on_main_process(self._check, runner)

    def _check(self, runner: Runner) -> None:
        model = unwrap_model(runner.model)
        check_channels(model)
        for loop in (runner._train_loop, runner._val_loop, runner._test_loop):
            if not isinstance(loop, BaseLoop):
                continue  # not of this run: still a config
            for dataset in members(loop.dataloader.dataset):
                check_crops(model, dataset)
                check_classes(model, dataset)
                check_files(dataset)
                check_masks(dataset, self.num_masks)
